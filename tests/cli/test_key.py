"""`cubinet key`: real processes over a configuration folder of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cubinet.store.keys import load_keyring, load_private
from cubinet.store.trust import load_revoked


class Cli:
    """Runs `cubinet key` for a user with this configuration folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cubinet"
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith("CUBINET")}
        self.environ["XDG_CONFIG_HOME"] = str(folder)

    def __call__(self, *argv: object, status: int = 0, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cubinet", "key", *map(str, argv)]
        done = subprocess.run(command, env=self.environ, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def json(self, *argv: object, given: str = "") -> Any:
        return json.loads(self(*argv, "--json", given=given).stdout)

    def secret(self) -> str:
        return (self.folder / "private-key").read_text().splitlines()[-1]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "config")


def test_a_new_key_is_private_and_its_public_line_is_printed(cli: Cli) -> None:
    done = cli("new", "--name", "ci of ours")
    file = cli.folder / "private-key"
    assert file.stat().st_mode & 0o7777 == 0o600
    assert file.parent.stat().st_mode & 0o7777 == 0o700
    key = load_private(str(file), {})
    assert key is not None
    assert done.stdout == f"{key.public}\n"
    assert str(file) in done.stderr
    assert cli.secret() not in done.stdout + done.stderr
    assert cli("show").stdout == done.stdout
    assert cli.json("show") == {"id": key.id, "name": "ci of ours", "key": str(key.public), "file": str(file)}


def test_a_key_is_never_overwritten(cli: Cli, tmp_path: Path) -> None:
    cli("new")
    before = (cli.folder / "private-key").read_bytes()
    done = cli("new", status=2)
    assert "there is one already; name another place with --file" in done.stderr
    assert (cli.folder / "private-key").read_bytes() == before
    found = cli.json("new", "--file", tmp_path / "other")
    assert found["file"] == str(tmp_path / "other")
    assert cli.json("show", "--file", tmp_path / "other") == found


def test_the_key_of_the_environment_is_shown_without_its_secret(cli: Cli) -> None:
    made = cli.json("new")
    secret = cli.secret()
    (cli.folder / "private-key").unlink()
    assert "make one with cubinet key new" in cli("show", status=2).stderr
    cli.environ["CUBINET_SIGN_KEY_DATA"] = secret
    assert cli.json("show") == {**made, "file": None}
    cli.environ["CUBINET_SIGN_KEY_DATA"] = secret[:-4]
    done = cli("show", status=2)
    assert secret[:12] not in done.stdout + done.stderr


def test_a_key_can_be_trusted_by_line_file_and_standard_input(cli: Cli, tmp_path: Path) -> None:
    lines = [cli("new", "--file", tmp_path / str(n), "--name", f"key {n}").stdout for n in range(4)]
    trusted = cli.folder / "trusted-keys"
    assert cli.json("trust", *lines[0].split()) == {"file": str(trusted), "added": [lines[0].strip()], "present": []}
    cli("trust", lines[1])
    (tmp_path / "keys").write_text(f"# both\n{lines[1]}{lines[2]}")
    found = cli.json("trust", tmp_path / "keys")
    assert (found["added"], found["present"]) == ([lines[2].strip()], [lines[1].strip()])
    assert cli("trust", "-", given=lines[3]).stdout == f"trusted {lines[3]}"
    assert cli("trust", "-", given=lines[3]).stdout == f"trusted already: {lines[3]}"
    assert trusted.read_text() == "".join(lines)
    assert trusted.stat().st_mode & 0o7777 == 0o644
    assert [key["key"] + "\n" for key in cli.json("show", "--trusted")] == sorted(
        lines, key=lambda line: line.split()[1]
    )
    assert len(load_keyring(str(trusted))) == 4


def test_a_private_key_is_not_taken_for_a_public_one(cli: Cli) -> None:
    cli("new")
    file = cli.folder / "private-key"
    for argv, given in ((("trust", file), ""), (("trust", "-"), file.read_text()), (("trust", file.read_text()), "")):
        done = cli(*argv, given=given, status=2)
        assert "a private key; give what cubinet key show prints" in done.stderr
        assert cli.secret() not in done.stderr
    assert not (cli.folder / "trusted-keys").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "no key in it"),
        ("# nothing\n", "no key in it"),
        ("ssh-rsa AAAA\n", "standard input:1: not a key line"),
        ("cubinet-key ed25519:0 AA==\n", "standard input:1: its third word"),
        ("#" * (1 << 20) + "\n", "larger than"),
    ],
    ids=["empty", "comment", "other", "short", "large"],
)
def test_what_is_no_key_is_not_trusted(cli: Cli, given: str, message: str) -> None:
    assert message in cli("trust", "-", given=given, status=2).stderr
    assert not (cli.folder / "trusted-keys").exists()


def test_users_mistakes_have_messages(cli: Cli, tmp_path: Path) -> None:
    assert "No such file" in cli("trust", tmp_path / "nowhere", status=2).stderr
    assert "Is a directory" in cli("trust", tmp_path, status=2).stderr
    assert "--file names a private key" in cli("show", "--trusted", "--file", "x", status=2).stderr
    assert "name of key" in cli("new", "--name", "a\nb", status=2).stderr
    assert "not a key line" in cli("trust", "cubinet-key", status=2).stderr
    (tmp_path / "taken").write_text("")
    assert "Not a directory" in cli("new", "--file", tmp_path / "taken" / "key", status=2).stderr
    done = cli("show", "--trusted")
    assert (done.stdout, done.stderr) == ("", "no trusted keys\n")
    assert cli.json("show", "--trusted") == []


def test_what_is_revoked_is_written_once_and_shown(cli: Cli) -> None:
    made = cli.json("new")
    cli("trust", made["key"])
    file = cli.folder / "revoked"
    entries = [made["id"], "blake3:" + "1" * 64, "2" * 64, "producer cubinet  0.1"]
    assert cli.json("revoke", *entries) == {
        "file": str(file), "added": [*entries[:3], "producer cubinet 0.1"], "present": [],
    }  # fmt: skip
    assert cli("revoke", made["id"]).stdout == f"revoked already: {made['id']}\n"
    assert len(file.read_text().splitlines()) == 4
    found = load_revoked(str(file))
    assert found.keys == {made["id"]}
    assert found.producers == {"cubinet 0.1"}
    assert "revoked" in cli("show", "--trusted").stdout
    assert cli.json("show", "--trusted")[0]["revoked"] is True


def test_the_files_that_settings_name_are_used(cli: Cli, tmp_path: Path) -> None:
    for name in ("sign_key", "trusted_keys", "revoked"):
        cli.environ[f"CUBINET_{name.upper()}"] = str(tmp_path / name)
    made = cli.json("new")
    assert made["file"] == str(tmp_path / "sign_key")
    cli("trust", made["key"])
    cli("revoke", made["id"])
    assert list(load_keyring(str(tmp_path / "trusted_keys"))) == [made["id"]]
    assert cli.json("show", "--trusted")[0]["revoked"] is True
    assert not cli.folder.exists()


def test_one_malformed_entry_revokes_nothing(cli: Cli) -> None:
    done = cli("revoke", "1" * 64, "\x1b[2J", status=2)
    assert "expected a fingerprint, blake3:DIGEST, ed25519:KEY or producer TEXT" in done.stderr
    assert "\x1b" not in done.stderr
    assert not (cli.folder / "revoked").exists()


def test_nothing_is_added_to_a_file_that_would_be_refused(cli: Cli) -> None:
    cli.folder.mkdir(parents=True)
    file = cli.folder / "revoked"
    file.write_text("what\n")
    assert "revoked:1" in cli("revoke", "1" * 64, status=2).stderr
    file.write_text("")
    file.chmod(0o666)
    assert "others can write it" in cli("revoke", "1" * 64, status=2).stderr
    assert file.read_text() == ""
