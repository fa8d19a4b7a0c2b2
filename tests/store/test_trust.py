"""Signatures on records, keys, revocation. Real keys, real files."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from blake3 import blake3

from cubinet._fs import Fs
from cubinet.errors import ConfigError, FormatError, TrustError
from cubinet.store import trust
from cubinet.store.format import SIGNATURES, decode_record, encode_record, glimpse, record_fields
from cubinet.store.keys import PrivateKey, PublicKey, add_lines, key_lines, load_keyring, load_private, new_private
from cubinet.store.trust import Policy, Revoked, load_revoked, sign, signing_bytes, verify
from cubinet.testing.samples import build, sealed

BUILD = build()
RAW = encode_record(BUILD.record)
SECRET = bytes(range(32))
TEXT = base64.b64encode(SECRET).decode()
KEY = PrivateKey(SECRET, "ci")
OTHER = PrivateKey(bytes(32), "other")
TRUSTED = {KEY.id: KEY.public}


def resealed(data: bytes) -> bytes:
    """The same bytes with a right check sum: what somebody does who changes a record on purpose."""
    return data[:11] + blake3(data[75:-1]).hexdigest().encode() + data[75:]


def private_file(path: Path, text: str = f"cubinet-private-key 1\nname ci\n{TEXT}\n", mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


# signing


def test_a_signed_record_is_vouched_for_and_decodes_to_the_same_build() -> None:
    signed = sign(RAW, KEY)
    assert verify(signed, TRUSTED) == KEY.id
    record = decode_record(signed)
    assert [key for key, _ in record.signatures] == [KEY.id]
    assert replace(record, signatures=()) == BUILD.record
    assert encode_record(record) == signed
    assert glimpse(signed, record.fingerprint) == BUILD.main


def test_a_record_without_signatures_is_stored_as_before() -> None:
    assert b"signatures" not in RAW
    assert decode_record(RAW).signatures == ()


def test_signed_bytes_are_the_context_and_the_fields_without_check_sum_and_signatures() -> None:
    fields = json.loads(RAW)
    del fields["_check"]
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert signing_bytes(RAW) == b"cubinet record v1\n" + canonical
    assert signing_bytes(sign(RAW, KEY)) == signing_bytes(RAW)


def test_a_signature_is_ed25519_of_the_signed_bytes_for_any_program() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    (one,) = json.loads(sign(RAW, KEY))["signatures"]
    assert one["key"] == f"ed25519:{blake3(KEY.public.raw).hexdigest()[:16]}"
    Ed25519PublicKey.from_public_bytes(KEY.public.raw).verify(base64.b64decode(one["sig"]), signing_bytes(RAW))


def test_every_flipped_bit_of_a_signed_record_is_refused() -> None:
    signed = sign(RAW, KEY)
    for at in range(len(signed)):
        for mask in (0x01, 0x20):
            changed = bytearray(signed)
            changed[at] ^= mask
            with pytest.raises(FormatError):
                verify(bytes(changed), TRUSTED)


def test_every_flipped_bit_is_refused_though_the_check_sum_was_made_right_again() -> None:
    signed = sign(RAW, KEY)
    by_trust = 0
    for at in range(75, len(signed) - 1):
        for mask in (0x01, 0x02, 0x20):
            changed = bytearray(signed)
            changed[at] ^= mask
            with pytest.raises((FormatError, TrustError)) as caught:
                verify(resealed(bytes(changed)), TRUSTED)
            by_trust += isinstance(caught.value, TrustError)
    assert by_trust > 1000


def test_a_record_under_another_fingerprint_is_the_callers_to_refuse_and_cannot_be_rewritten() -> None:
    signed, other = sign(RAW, KEY), build("other")
    # moved as it is: still vouched for, but it names its own build
    assert verify(signed, TRUSTED) == KEY.id
    assert decode_record(signed).fingerprint != other.fingerprint
    with pytest.raises(FormatError, match="it is the record of"):
        glimpse(signed, other.fingerprint)
    # rewritten to fit its new name: no longer vouched for
    moved = signed.replace(BUILD.fingerprint.hex.encode(), other.fingerprint.hex.encode())
    with pytest.raises(TrustError, match="changed after it was signed") as caught:
        verify(resealed(moved), TRUSTED)
    assert other.fingerprint.hex in str(caught.value)


def test_a_signature_of_one_record_does_not_vouch_for_another() -> None:
    other = json.loads(encode_record(build("other").record))
    other["signatures"] = json.loads(sign(RAW, KEY))["signatures"]
    del other["_check"]
    with pytest.raises(TrustError, match="changed after it was signed"):
        verify(sealed(other), TRUSTED)


def test_unsigned_and_unknown_signers_are_told_apart() -> None:
    with pytest.raises(TrustError, match=r"nobody signed it; .*cubinet key trust"):
        verify(RAW, TRUSTED)
    with pytest.raises(TrustError, match=rf"not trusted: {OTHER.id}; .*cubinet key trust"):
        verify(sign(RAW, OTHER), TRUSTED)
    with pytest.raises(TrustError, match="not trusted"):
        verify(sign(RAW, KEY), {})


def test_a_key_trusted_under_anothers_id_does_not_vouch() -> None:
    with pytest.raises(TrustError, match="wrong"):
        verify(sign(RAW, KEY), {KEY.id: OTHER.public})


def test_of_two_signatures_any_suffices() -> None:
    both = sign(sign(RAW, KEY), OTHER)
    assert both == sign(sign(RAW, OTHER), KEY)
    keys = [key for key, _ in decode_record(both).signatures]
    assert keys == sorted([KEY.id, OTHER.id])
    assert verify(both, TRUSTED) == KEY.id
    assert verify(both, {OTHER.id: OTHER.public}) == OTHER.id


def test_a_bad_signature_beside_a_good_one_does_no_harm() -> None:
    fields = json.loads(sign(sign(RAW, KEY), OTHER))
    del fields["_check"]
    for one in fields["signatures"]:
        if one["key"] == OTHER.id:
            one["sig"] = base64.b64encode(bytes(64)).decode()
    assert verify(sealed(fields), TRUSTED) == KEY.id
    assert verify(sealed(fields), {**TRUSTED, OTHER.id: OTHER.public}) == KEY.id
    with pytest.raises(TrustError, match="wrong"):
        verify(sealed(fields), {OTHER.id: OTHER.public})


def test_signing_again_replaces_our_signature_and_keeps_what_others_put_there() -> None:
    fields = json.loads(RAW)
    del fields["_check"]
    later = {"key": "later:1", "sig": "?", "time": 7}
    fields["signatures"] = [{"key": KEY.id, "sig": "old"}, later]
    signed = sign(sealed(fields), KEY)
    assert sign(signed, KEY) == signed
    assert later in json.loads(signed)["signatures"]
    assert verify(signed, TRUSTED) == KEY.id


def test_fields_of_later_releases_are_covered_and_kept() -> None:
    fields = json.loads(RAW)
    del fields["_check"]
    fields["zone"] = {"number": 12345678901234567890123, "small": 1e-7, "text": "ü"}
    signed = sign(sealed(fields), KEY)
    assert json.loads(signed)["zone"] == fields["zone"]
    assert verify(signed, TRUSTED) == KEY.id
    with pytest.raises(TrustError):
        verify(resealed(signed.replace(b"12345678901234567890123", b"12345678901234567890124")), TRUSTED)
    del fields["zone"]
    with pytest.raises(TrustError):
        verify(sealed({**fields, "signatures": json.loads(signed)["signatures"]}), TRUSTED)


def test_json_that_could_be_read_in_two_ways_is_refused() -> None:
    signed = sign(RAW, KEY)
    twice = signed[:-2] + b',"zone":1,"zone":2}\n'
    blank = signed.replace(b',"created"', b', "created"', 1)
    hidden = signed[:-2] + b',"_check":"x"}\n'
    for changed in (twice, blank, hidden):
        assert changed != signed
        with pytest.raises(FormatError, match="not canonical"):
            record_fields(resealed(changed))


@pytest.mark.parametrize(
    "signatures",
    [None, {}, "x", [1], [{"key": "a"}], [{"key": 1, "sig": "a"}], [{"key": "a", "sig": "b"}] * (SIGNATURES + 1)],
    ids=repr,
)
def test_malformed_signatures_are_damage(signatures: object) -> None:
    fields = json.loads(RAW)
    del fields["_check"]
    raw = sealed({**fields, "signatures": signatures})
    for read in (decode_record, lambda data: verify(data, TRUSTED), lambda data: sign(data, KEY)):
        with pytest.raises(FormatError):
            read(raw)


def test_no_more_than_the_greatest_number_of_signatures_is_made() -> None:
    fields = json.loads(RAW)
    del fields["_check"]
    fields["signatures"] = [{"key": f"k{n:02}", "sig": ""} for n in range(SIGNATURES)]
    with pytest.raises(FormatError, match="already"):
        sign(sealed(fields), KEY)


@pytest.mark.parametrize("text", ["", "A", "AAAA", "=" * 88, "é" * 88, TEXT, "\x1b[2J"])
def test_a_signature_that_is_none_is_a_wrong_one(text: str) -> None:
    fields = json.loads(RAW)
    del fields["_check"]
    with pytest.raises(TrustError, match="wrong"):
        verify(sealed({**fields, "signatures": [{"key": KEY.id, "sig": text}]}), TRUSTED)


def test_a_strangers_key_id_cannot_write_on_the_terminal() -> None:
    fields = json.loads(RAW)
    del fields["_check"]
    fields["signatures"] = [{"key": "\x1b[2Jevil" * 100, "sig": ""}]
    fields["fingerprint"] = "\x1b[2J"
    with pytest.raises(TrustError) as caught:
        verify(sealed(fields), TRUSTED)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


# policy


def test_owner_and_open_ask_for_no_signature() -> None:
    for kind in ("owner", "open"):
        policy = Policy(kind)
        assert not policy.looks
        policy.admit(RAW, BUILD.record)


def test_signed_lets_in_what_a_trusted_key_signed_and_nothing_else() -> None:
    policy = Policy("signed", TRUSTED)
    signed = sign(RAW, KEY)
    policy.admit(signed, decode_record(signed))
    policy.admit(signed, decode_record(signed))  # from memory
    for raw in (RAW, sign(RAW, OTHER)):
        with pytest.raises(TrustError):
            policy.admit(raw, decode_record(raw))


def test_what_one_keyring_vouched_for_is_not_vouched_for_under_another() -> None:
    signed = sign(RAW, KEY)
    Policy("signed", TRUSTED).admit(signed, decode_record(signed))
    with pytest.raises(TrustError):
        Policy("signed", {OTHER.id: OTHER.public}).admit(signed, decode_record(signed))
    with pytest.raises(TrustError):
        Policy("signed", {KEY.id: OTHER.public}).admit(signed, decode_record(signed))


def test_a_process_remembers_a_bounded_number_of_verified_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_REMEMBERED", 2)
    for seed in "abcde":
        signed = sign(encode_record(build(seed).record), KEY)
        assert verify(signed, TRUSTED) == verify(signed, TRUSTED) == KEY.id
        assert 1 <= len(vars(trust)["_vouched"]) <= 2


def test_threads_verify_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_REMEMBERED", 3)
    records = [sign(encode_record(build(str(n)).record), KEY) for n in range(8)]
    bad = sign(RAW, OTHER)

    def work(_: int) -> int:
        for raw in records * 10:
            assert verify(raw, TRUSTED) == KEY.id
            with pytest.raises(TrustError):
                verify(bad, TRUSTED)
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 4


def test_a_policy_survives_pickling() -> None:
    policy = Policy("signed", TRUSTED, Revoked.parse({OTHER.id: ""}))
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_an_unknown_kind_of_trust_is_refused() -> None:
    with pytest.raises(ConfigError, match="owner, signed or open"):
        Policy("maybe")


def test_a_policy_is_read_from_files_named_or_beside_the_configuration(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert Policy.load("signed", environ) == Policy("signed")
    home = tmp_path / "cubinet"
    add_lines(str(home / "trusted-keys"), [str(KEY.public)], Fs())
    add_lines(str(home / "revoked"), [OTHER.id], Fs())
    revoked = Revoked.parse({OTHER.id: ""})
    assert Policy.load("signed", environ) == Policy("signed", TRUSTED, revoked)
    assert Policy.load("owner", environ) == Policy("owner", {}, revoked)
    (tmp_path / "mine").write_text(f"{OTHER.public}\n")
    (tmp_path / "none").write_text("")
    found = Policy.load("signed", environ, trusted_keys=str(tmp_path / "mine"), revoked=str(tmp_path / "none"))
    assert found == Policy("signed", {OTHER.id: OTHER.public})


@pytest.mark.parametrize("name", ["trusted_keys", "revoked"])
def test_a_file_that_a_setting_names_must_be_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"no such file; make it"):
        Policy.load("signed", {"XDG_CONFIG_HOME": str(tmp_path)}, **{name: str(tmp_path / "gone")})


REVOCATIONS = {
    "fingerprint": BUILD.fingerprint.hex,
    "blob": str(BUILD.main.digest),
    "key": KEY.id,
    "producer": "producer cubinet  test",
}


@pytest.mark.parametrize("kind", ["owner", "signed", "open"])
@pytest.mark.parametrize("entry", REVOCATIONS.values(), ids=REVOCATIONS)
def test_what_is_revoked_stays_out_under_every_kind(tmp_path: Path, kind: str, entry: str) -> None:
    file = tmp_path / "revoked"
    file.write_text(f"# leaked\n\n  {entry}   # since then\n")
    policy = Policy(kind, TRUSTED, load_revoked(str(file)))
    signed = sign(RAW, KEY)
    with pytest.raises(TrustError, match="revoked"):
        policy.admit(signed, decode_record(signed))
    other = sign(sign(encode_record(build("another", producer="cubinet 2").record), OTHER), KEY)
    trusts_both = replace(policy, keyring={**TRUSTED, OTHER.id: OTHER.public})
    trusts_both.admit(other, decode_record(other))


def test_a_revoked_key_vouches_for_nothing_beside_a_strangers_signature() -> None:
    policy = Policy("signed", TRUSTED, Revoked.parse({KEY.id: ""}))
    both = sign(sign(RAW, KEY), OTHER)
    with pytest.raises(TrustError, match="not trusted"):
        policy.admit(both, decode_record(both))


def test_a_missing_file_of_revocations_revokes_nothing(tmp_path: Path) -> None:
    assert not load_revoked(str(tmp_path / "revoked"))
    assert not load_revoked(str(tmp_path / "no folder" / "revoked"))


@pytest.mark.parametrize(
    "line", ["x", "blake3:12", "ed25519:xyz", "producer", "sha256:" + "0" * 64, "A" * 64, "producer \x1b[2J", "0" * 63]
)
def test_a_malformed_revocation_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "revoked"
    file.write_text(f"# one\n{line}\n")
    with pytest.raises(ConfigError, match=r"revoked:2: .*is none") as caught:
        load_revoked(str(file))
    assert str(caught.value).isprintable()


# key files


def test_a_private_key_comes_from_its_file_or_the_environment(tmp_path: Path) -> None:
    file = private_file(tmp_path / "key")
    found = load_private(str(file), {})
    assert found is not None
    assert found.id == KEY.id
    assert found.public.name == "ci"
    assert found.file_bytes() == file.read_bytes()
    from_environ = load_private("", {"CUBINET_SIGN_KEY_DATA": f"{TEXT}\n"})
    assert from_environ is not None
    assert from_environ.id == KEY.id
    assert load_private("", {}) is None
    assert load_private("", {"CUBINET_SIGN_KEY_DATA": ""}) is None


def test_a_name_is_optional(tmp_path: Path) -> None:
    found = load_private(str(private_file(tmp_path / "key", f"cubinet-private-key 1\n{TEXT}\n")), {})
    assert found is not None
    assert found.id == KEY.id
    assert found.public.name == ""
    assert PublicKey.parse(str(found.public)) == found.public


MALFORMED_PRIVATE = {
    "empty": "",
    "header only": "cubinet-private-key 1\n",
    "newer": f"cubinet-private-key 2\n{TEXT}\n",
    "no header": f"{TEXT}\n",
    "other header": f"-----BEGIN PRIVATE KEY-----\n{TEXT}\n",
    "short": f"cubinet-private-key 1\n{TEXT[:-4]}\n",
    "long": f"cubinet-private-key 1\n{base64.b64encode(SECRET * 2).decode()}\n",
    "spare bits": f"cubinet-private-key 1\n{TEXT[:-2]}9=\n",
    "blank inside": f"cubinet-private-key 1\n{TEXT[:9]} {TEXT[9:]}\n",
    "something after": f"cubinet-private-key 1\n{TEXT}\n{TEXT}\n",
    "name twice": f"cubinet-private-key 1\nname a\nname b\n{TEXT}\n",
    "secret in the name": f"cubinet-private-key 1\nname {TEXT}\t{TEXT}\n{TEXT}\n",
    "too large": f"cubinet-private-key 1\n{TEXT}\n" + "\n" * 5000,
    "not text": f"cubinet-private-key 1\n{TEXT}\udcff\n",
}


@pytest.mark.parametrize("text", MALFORMED_PRIVATE.values(), ids=MALFORMED_PRIVATE)
def test_a_malformed_private_key_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=r"private key|name of key") as caught:
        load_private(str(file), {})
    assert TEXT[:20] not in str(caught.value) + repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("text", ["x", TEXT[:-4], TEXT + TEXT, f"cubinet-private-key 1\n{TEXT}", "é" + TEXT])
def test_a_malformed_key_in_the_environment_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ConfigError, match="CUBINET_SIGN_KEY_DATA") as caught:
        load_private("", {"CUBINET_SIGN_KEY_DATA": text})
    assert TEXT[:20] not in str(caught.value) + repr(caught.value)
    assert caught.value.__cause__ is None


def test_a_private_key_that_is_not_there_is_not_silently_left_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file; make one with cubinet key new"):
        load_private(str(tmp_path / "key"), {})


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_a_private_key_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=f"{mode:04o}.*chmod go-rwx"):
        load_private(str(private_file(tmp_path / "key", mode=mode)), {})


LOADERS: dict[str, Callable[[str], object]] = {
    "private": lambda path: load_private(path, {}),
    "trusted": load_keyring,
    "revoked": load_revoked,
}
each_loader = pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)


@each_loader
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, load: Callable[[str], object], mode: int) -> None:
    with pytest.raises(ConfigError, match=r"others can .*write it .*chmod go-"):
        load(str(private_file(tmp_path / "file", mode=mode)))


@each_loader
def test_a_file_of_somebody_else_is_refused(tmp_path: Path, load: Callable[[str], object]) -> None:
    file = private_file(tmp_path / "file")
    try:
        os.chown(file, 4321, -1)
    except PermissionError as exc:
        pytest.skip(f"only root can give a file away: {exc}")
    with pytest.raises(ConfigError, match="belongs to user 4321"):
        load(str(file))


@each_loader
def test_a_folder_a_pipe_and_a_bad_name_are_refused(tmp_path: Path, load: Callable[[str], object]) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (str(tmp_path), str(tmp_path / "pipe")):
        with pytest.raises(ConfigError, match="not a file"):
            load(path)
    with pytest.raises(ConfigError):
        load("a\0b")
    with pytest.raises(ConfigError):
        load(str(private_file(tmp_path / "file") / "below"))


def test_trusted_keys_are_one_a_line(tmp_path: Path) -> None:
    file = tmp_path / "trusted-keys"
    file.write_text(f"# ours\n{KEY.public}\n\n  {OTHER.public}  # theirs\n")
    assert load_keyring(str(file)) == {KEY.id: KEY.public, OTHER.id: OTHER.public}
    assert load_keyring(str(tmp_path / "none")) == {}


BASE64 = base64.b64encode(KEY.public.raw).decode()
MALFORMED_LINES = {
    "word": f"ssh-ed25519 {KEY.id} {BASE64} ci",
    "no key": f"cubinet-key {KEY.id}",
    "another id": f"cubinet-key {OTHER.id} {BASE64}",
    "short": f"cubinet-key {KEY.id} {BASE64[:-4]}",
    "no base64": f"cubinet-key {KEY.id} {'*' * 44}",
    "control": f"cubinet-key {KEY.id} {BASE64} a\x1b[2J",
    "long name": f"cubinet-key {KEY.id} {BASE64} {'n' * 201}",
}


@pytest.mark.parametrize("line", MALFORMED_LINES.values(), ids=MALFORMED_LINES)
def test_a_malformed_key_line_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "trusted-keys"
    file.write_text(f"{OTHER.public}\n{line}\n")
    with pytest.raises(ConfigError, match="trusted-keys:2: ") as caught:
        load_keyring(str(file))
    assert str(caught.value).isprintable()


def test_a_file_of_keys_has_a_size_limit_and_is_text(tmp_path: Path) -> None:
    file = tmp_path / "trusted-keys"
    file.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(ConfigError, match="larger than"):
        load_keyring(str(file))
    file.write_bytes(b"\xff\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_keyring(str(file))


@pytest.mark.parametrize("name", ["a\nb", "a #b", "#a", "\x1b[2J", " a", "n" * 201, "\udcff"])
def test_a_key_has_no_name_that_its_line_could_not_hold(name: str) -> None:
    with pytest.raises(ConfigError, match="name of key"):
        new_private(name)


def test_new_keys_differ() -> None:
    one, two = new_private("a"), new_private("a")
    assert one.id != two.id
    assert key_lines(f"{one.public}\n{two.public}\n".encode(), "here") == [one.public, two.public]


def test_the_secret_is_in_no_repr_pickle_or_copy() -> None:
    for text in (repr(KEY), str(KEY), f"{KEY!s}", repr([KEY])):
        assert TEXT not in text
        assert repr(SECRET)[2:20] not in text
        assert SECRET.hex() not in text
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled or copied"):
            attempt(KEY)


# adding lines


def test_lines_are_added_once_and_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    file = tmp_path / "new" / "trusted-keys"
    assert add_lines(str(file), [str(KEY.public)] * 2, Fs()) == [str(KEY.public)]
    renamed = str(PublicKey(KEY.public.raw, "another name"))
    assert add_lines(str(file), [renamed, str(OTHER.public)], Fs()) == [str(OTHER.public)]
    assert file.read_text() == f"{KEY.public}\n{OTHER.public}\n"
    assert file.stat().st_mode & 0o7777 == 0o644
    assert list(file.parent.iterdir()) == [file]


def test_a_last_line_without_its_end_and_comments_stay_whole(tmp_path: Path) -> None:
    file = tmp_path / "revoked"
    file.write_text(f"# why\n{KEY.id}  # leaked")
    assert add_lines(str(file), [KEY.id, OTHER.id], Fs()) == [OTHER.id]
    assert file.read_text() == f"# why\n{KEY.id}  # leaked\n{OTHER.id}\n"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    add_lines(str(tmp_path / "link"), [KEY.id], Fs())
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == f"{KEY.id}\n"


def test_a_file_that_others_can_write_is_not_taken_over(tmp_path: Path) -> None:
    file = private_file(tmp_path / "revoked", "", mode=0o666)
    with pytest.raises(ConfigError, match="others can write it"):
        add_lines(str(file), [KEY.id], Fs())
    assert file.read_text() == ""


class _FullDisk(Fs):
    def rename(self, source: str, target: str) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "revoked"
    file.write_text(f"{KEY.id}\n")
    with pytest.raises(ConfigError, match="No space left"):
        add_lines(str(file), [OTHER.id], _FullDisk())
    assert file.read_text() == f"{KEY.id}\n"
    assert list(tmp_path.iterdir()) == [file]


ADD = """
import sys
from cubinet._fs import Fs
from cubinet.store.keys import add_lines
for n in range(20):
    add_lines(sys.argv[1], [f"producer {sys.argv[2]} {n}"], Fs())
"""


def test_processes_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "revoked"
    running = [subprocess.Popen([sys.executable, "-c", ADD, str(file), str(n)]) for n in range(3)]
    assert [one.wait(60) for one in running] == [0, 0, 0]
    assert len(load_revoked(str(file)).producers) == 60


# cryptography


WITHOUT = """
import sys
sys.modules["cryptography"] = None
from cubinet.errors import ConfigError, TrustError
from cubinet.store.format import encode_record, decode_record
from cubinet.store.trust import Policy, PublicKey, PrivateKey, Revoked, verify
from cubinet.testing.samples import build
raw = encode_record(build().record)
Policy("owner").admit(raw, build().record)
Policy("open", revoked=Revoked.parse({"producer x": ""})).admit(raw, build().record)
try:
    verify(raw, {})
except TrustError as exc:
    print(exc)
try:
    PrivateKey(bytes(32))
except ConfigError as exc:
    print(exc)
"""


def test_without_the_package_only_signatures_fail_and_say_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    unsigned, missing = done.stdout.splitlines()
    assert "nobody signed it" in unsigned
    assert "pip install 'cubinet[sign]'" in missing


UNUSED = """
import sys
from cubinet.store.format import encode_record
from cubinet.store.trust import Policy
from cubinet.testing.samples import build
Policy("owner").admit(encode_record(build().record), build().record)
print(sorted(name for name in sys.modules if name.partition(".")[0] == "cryptography"))
"""


def test_a_policy_without_signatures_does_not_load_the_package() -> None:
    done = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
