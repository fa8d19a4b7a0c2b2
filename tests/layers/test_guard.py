"""Budget and breaker of a layer, by a clock that is turned by hand."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cubinet.errors import (
    ConfigError,
    CubinetError,
    FormatError,
    RemoteDeniedError,
    RemoteMisconfiguredError,
    RemoteUnavailableError,
    StoreError,
    TrustError,
)
from cubinet.events import Counters
from cubinet.store.guard import Guard
from cubinet.testing.remotes import in_child

PLACE = "s3://bucket/prefix"


class Bell:
    """A guard, its clock, and what it said."""

    def __init__(self, *, strict: bool = False, budget: float = 2.0) -> None:
        self.time, self.said, self.counters, self.calls = 1000.0, [], Counters(), 0
        self.prepared = 0
        self.guard = Guard(
            "s3", PLACE, self.counters, self._warn, strict=strict, budget=budget, clock=lambda: self.time
        )

    said: list[str]

    def _warn(self, text: str, about: str) -> None:
        if self.counters.first(about):
            self.said.append(text)

    def _prepare(self) -> None:
        self.prepared += 1

    def ask(self, what: CubinetError | float = 0.0, takes: float = 0.0, limit: float = 0.0, begin: bool = True) -> str:
        """One call in a lookup of its own: `asked` if it got through."""
        if begin:
            self.guard.begin(self._prepare)
        before = self.calls

        def call(timeout: float) -> str:
            assert timeout > 0
            self.calls += 1
            self.time += takes
            if isinstance(what, CubinetError):
                raise what
            return "answer"

        self.guard.attempt("read", call, "", limit=limit)
        return "asked" if self.calls > before else "skipped"


def unavailable(finding: str = "it answered status 503") -> RemoteUnavailableError:
    return RemoteUnavailableError("read v1/records/ab/ab from", PLACE, finding)


def test_three_failures_in_a_row_open_it() -> None:
    bell = Bell()
    assert [bell.ask(unavailable()) for _ in range(5)] == ["asked"] * 3 + ["skipped"] * 2
    assert bell.guard.open
    assert bell.counters.snapshot() == {"error.read": 3, "skipped.s3": 2}
    assert len(bell.said) == 1


def test_an_answer_in_between_starts_the_count_anew() -> None:
    bell = Bell()
    for _ in range(5):
        assert [bell.ask(unavailable()), bell.ask(unavailable()), bell.ask()] == ["asked"] * 3
    assert not bell.guard.open


def test_one_that_was_too_slow_opens_it_at_once() -> None:
    bell = Bell()
    assert [bell.ask(unavailable("no answer within 2 s"), takes=2.0), bell.ask()] == ["asked", "skipped"]
    assert "going on without it for 30 s" in bell.said[0]


def test_a_connection_that_is_not_taken_counts_as_slow() -> None:
    """SYNs without an answer end after a second, which is less than the budget."""
    bell = Bell()
    assert [bell.ask(unavailable(), takes=1.0), bell.ask()] == ["asked", "skipped"]


def test_an_upload_may_fail_slowly() -> None:
    bell = Bell()
    assert [bell.ask(unavailable(), takes=1.0, limit=30.0) for _ in range(2)] == ["asked"] * 2
    assert not bell.guard.open
    bell.ask(unavailable(), takes=30.0, limit=30.0)
    assert bell.guard.open


@pytest.mark.parametrize(
    "error",
    [
        RemoteDeniedError("read a from", PLACE, "it refuses these credentials this"),
        RemoteMisconfiguredError("read a from", PLACE, "no such bucket"),
        ConfigError("use signatures", "", "the package cryptography is not installed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_will_not_pass_by_itself_opens_it_at_once(error: CubinetError) -> None:
    bell = Bell()
    assert [bell.ask(error), bell.ask()] == ["asked", "skipped"]
    assert error.finding in bell.said[0]
    assert PLACE in bell.said[0]


@pytest.mark.parametrize(
    "error", [StoreError("read", "/shared/x", "Input/output error"), FormatError("read", "", "cut")]
)
def test_a_damaged_file_is_no_reason_to_leave_at_once(error: CubinetError) -> None:
    bell = Bell()
    assert [bell.ask(error), bell.ask(error), bell.ask()] == ["asked"] * 3
    assert not bell.guard.open


def test_a_record_that_is_refused_is_no_failure_of_the_layer() -> None:
    bell = Bell()
    refused = TrustError("trust record", "ab", "nobody signed it")
    assert [bell.ask(refused) for _ in range(10)] == ["asked"] * 10
    assert not bell.guard.open
    assert bell.counters.snapshot() == {"refused.s3": 10}
    assert len(bell.said) == 1
    assert PLACE in bell.said[0]


def test_the_pause_doubles_up_to_ten_minutes_and_is_forgotten_when_it_works() -> None:
    bell = Bell()
    pauses = []
    for _ in range(8):
        while bell.ask(unavailable(), takes=2.0) == "skipped":
            bell.time += 1
        start = bell.time
        while bell.guard.open:
            bell.time += 1
        pauses.append(bell.time - start)
    assert pauses == [30, 60, 120, 240, 480, 600, 600, 600]
    assert bell.ask() == "asked"
    bell.ask(unavailable(), takes=2.0)
    start = bell.time
    while bell.guard.open:
        bell.time += 1
    assert bell.time - start == 30


def test_after_the_pause_one_failure_is_enough() -> None:
    bell = Bell()
    bell.ask(unavailable(), takes=2.0)
    bell.time += 31
    assert [bell.ask(unavailable()), bell.ask()] == ["asked", "skipped"]


def test_after_the_pause_a_single_request_tries_it() -> None:
    bell = Bell()
    bell.ask(unavailable(), takes=2.0)
    bell.time += 31
    go, asked = threading.Event(), []

    def call(timeout: float) -> int:
        asked.append(threading.get_ident())
        go.wait(10)
        return 1

    def look(_: int) -> tuple[int, str]:
        bell.guard.begin(lambda: None)
        answer = bell.guard.attempt("read", call, 0)
        if not answer[0]:
            done.release()
        return answer

    done = threading.Semaphore(0)
    with ThreadPoolExecutor(16) as pool:
        found = pool.map(look, range(16))
        for _ in range(15):
            assert done.acquire(timeout=10)
        go.set()
        answers = list(found)
    assert len(asked) == 1
    assert sorted(answer for answer, _ in answers) == [0] * 15 + [1]
    assert not bell.guard.open
    with ThreadPoolExecutor(16) as pool:
        assert [answer for answer, _ in pool.map(look, range(16))] == [1] * 16


def test_a_try_that_is_interrupted_is_followed_by_another() -> None:
    bell = Bell()
    bell.ask(unavailable(), takes=2.0)
    bell.time += 31
    bell.guard.begin(lambda: None)

    def interrupted(timeout: float) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bell.guard.attempt("read", interrupted, "")
    assert bell.ask() == "asked"


def test_a_try_that_gets_no_time_leaves_the_way_free() -> None:
    bell = Bell()
    bell.ask(unavailable(), takes=2.0)
    bell.time += 31
    bell.guard.begin(lambda: None)
    bell.time += 2.0
    assert bell.ask(begin=False) == "skipped"
    assert bell.ask() == "asked"


def test_a_lookup_has_one_budget_for_all_it_asks() -> None:
    bell = Bell(budget=2.0)
    bell.guard.begin(lambda: None)
    assert [bell.ask(takes=0.9, begin=False) for _ in range(4)] == ["asked"] * 3 + ["skipped"]
    assert not bell.guard.open


def test_a_quick_compile_makes_the_budget_smaller_and_a_slow_one_not_larger() -> None:
    bell = Bell(budget=2.0)
    for seconds, wanted in ((0.5, 0.5), (60.0, 2.0), (None, 2.0)):
        bell.guard.begin(lambda: None, seconds)
        assert bell.guard.left() == wanted


def test_each_thread_has_its_own_budget() -> None:
    bell = Bell(budget=2.0)
    bell.guard.begin(lambda: None)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(bell.guard.left).result() < 0
        pool.submit(bell.guard.begin, lambda: None).result()
        assert pool.submit(bell.guard.left).result() == 2.0


def test_strict_raises() -> None:
    bell = Bell(strict=True)
    for error in (unavailable(), RemoteDeniedError("read", PLACE, "no"), StoreError("read", "", "x")):
        with pytest.raises(type(error)):
            bell.ask(error)
        bell.guard.forget()
    with pytest.raises(TrustError):
        bell.ask(TrustError("trust record", "ab", "nobody signed it"))


def test_the_client_is_prepared_once_outside_the_budget() -> None:
    bell = Bell(budget=2.0)

    def prepare() -> None:
        bell.prepared += 1
        bell.time += 5.0

    for _ in range(3):
        bell.guard.begin(prepare)
        assert bell.guard.left() == 2.0
    assert bell.prepared == 1


@pytest.mark.parametrize("strict", [False, True])
def test_a_client_that_cannot_be_prepared_is_trouble_with_the_layer(strict: bool) -> None:
    bell = Bell(strict=strict)

    def prepare() -> None:
        bell.prepared += 1
        raise RemoteMisconfiguredError("use", PLACE, "s3fs cannot be imported", "install cubinet[s3]")

    if strict:
        with pytest.raises(RemoteMisconfiguredError):
            bell.guard.begin(prepare)
        return
    for _ in range(3):
        bell.guard.begin(prepare)
        assert bell.ask(begin=False) == "skipped"
    assert bell.prepared == 1
    assert "install cubinet[s3]" in bell.said[0]
    bell.time += 31
    bell.guard.begin(prepare)
    assert bell.prepared == 2


def test_one_outage_is_told_once_whatever_the_objects_are_called() -> None:
    bell = Bell()
    for number in range(5):
        bell.guard.forget()
        bell.ask(RemoteUnavailableError(f"read v1/records/ab/{number} from", PLACE, f"no answer within {number / 7} s"))
    assert len(bell.said) == 1
    bell.guard.forget()
    bell.ask(RemoteDeniedError("read", PLACE, "it refuses these credentials this"))
    assert len(bell.said) == 2


def test_a_forked_child_starts_afresh() -> None:
    bell = Bell()
    bell.ask(unavailable(), takes=2.0)
    assert bell.guard.open
    lock = bell.guard._lock
    with lock:  # held by a thread that the child has not
        assert in_child(lambda: f"{bell.guard.open} {bell.ask()} {bell.prepared}") == "False asked 2"
    assert bell.guard.open


def test_forgetting_tries_at_once() -> None:
    bell = Bell()
    bell.ask(unavailable(), takes=2.0)
    bell.guard.forget()
    assert bell.ask() == "asked"
