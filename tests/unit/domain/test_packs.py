"""Packs: which members share a row, what their body holds, and what a pack row says of them."""

from __future__ import annotations

import json
import zlib
from decimal import Decimal
from hashlib import sha256

import pytest

from dynatick.domain.batches import Batch, row_of_member
from dynatick.domain.packs import (
    MAX_BODY_BYTES,
    MAX_MEMBER_BYTES,
    MAX_PAYLOADS_BYTES,
    Pack,
    Span,
    check_batch_id,
    member_id,
    packed,
    parse_member_id,
    payload_text,
    payloads_of,
    spans_of,
    spans_with,
)
from dynatick.domain.task import check_task_id
from dynatick.errors import InvalidInput


def noise(characters: int, seed: object = 0) -> str:
    """Text that can hardly be compressed."""
    parts = (sha256(f"{seed}-{n}".encode()).hexdigest() for n in range(-(-characters // 64)))
    return "".join(parts)[:characters]


def bodies(payloads: list[dict[str, object]], first: int = 0) -> dict[Span, bytes]:
    texts = [payload_text(payload, first + n) for n, payload in enumerate(payloads)]
    return dict(packed(Span(first, len(texts)), texts))


@pytest.mark.parametrize(
    ("total", "members"),
    [(0, []), (1, [1]), (499, [499]), (500, [500]), (501, [500, 1]), (1000, [500, 500]), (1203, [500, 500, 203])],
)
def test_the_packs_of_a_batch(total: int, members: list[int]) -> None:
    spans = list(spans_of(total))
    assert [span.members for span in spans] == members
    assert [span.first for span in spans] == list(range(0, total, 500))


def test_ids_stand_in_the_order_of_numbers() -> None:
    numbers = [0, 9, 10, 499, 99_999_999]
    ids = [member_id("a/b", number) for number in numbers]
    assert ids == sorted(ids) and ids[1] == "a/b/000000009"
    assert [parse_member_id(one) for one in ids] == [("a/b", number) for number in numbers]
    assert Span(500, 500).pack_id("a/b") == "a/b/000000500-000000999"


@pytest.mark.parametrize(
    "task_id",
    ["news", "news/1", "news/00000000x", "/000000001", "news/0000000001", "news000000001", "news/" + 9 * chr(0x661)],
)
def test_another_id_is_no_members(task_id: str) -> None:
    assert parse_member_id(task_id) is None


def test_the_id_of_a_batch_leaves_room_for_those_of_its_members() -> None:
    longest = "é" * 502
    assert check_batch_id(longest) == longest
    check_task_id(Span(99_999_500, 500).pack_id(longest))
    for wrong in ("", "x" * 1005, "é" * 503, "_dynatick#x", 5, None):
        with pytest.raises(InvalidInput):
            check_batch_id(wrong)


@pytest.mark.parametrize("members", [1, 2, 3, 499, 500])
def test_small_payloads_share_one_body(members: int) -> None:
    payloads: list[dict[str, object]] = [{"to": f"customer-{n}@example.com", "n": n} for n in range(members)]
    ((span, body),) = bodies(payloads, first=1000).items()
    assert span == Span(1000, members)
    assert payloads_of({"body": body}, members) == payloads


def test_what_does_not_fit_is_halved_until_it_does() -> None:
    payloads: list[dict[str, object]] = [{"n": n, "noise": noise(300, n)} for n in range(500)]
    payloads[77] = {"n": 77, "noise": noise(90_000)}
    found = bodies(payloads)
    spans = list(found)
    assert [span.first for span in spans] == sorted(span.first for span in spans)
    assert sum(span.members for span in spans) == 500 and Span(77, 1) in spans
    read = [one for span, body in found.items() for one in payloads_of({"body": body}, span.members)]
    assert read == payloads
    assert all(len(body) <= MAX_BODY_BYTES for span, body in found.items() if span.members > 1)
    for number in (0, 76, 77, 78, 499):
        assert set(spans_with(number, 500)) & set(spans) == {
            span for span in spans if span.first <= number <= span.last
        }


def test_the_pack_of_a_member_is_one_of_ten() -> None:
    for total in (1, 2, 500, 501, 777):
        for number in {0, total // 2, total - 1}:
            spans = list(spans_with(number, total))
            assert len(spans) <= 10 and spans[-1] == Span(number, 1)
            assert all(span.first <= number <= span.last < total for span in spans)


def test_a_pack_is_small_in_memory_too() -> None:
    payloads: list[dict[str, object]] = [{"zeros": "0" * 90_000} for _ in range(40)]
    found = bodies(payloads)
    assert all(span.members * 90_000 <= MAX_PAYLOADS_BYTES for span in found)
    assert sum(span.members for span in found) == 40


def test_a_member_of_the_largest_size_has_a_pack_of_its_own() -> None:
    room = MAX_MEMBER_BYTES - len('{"x": ""}')
    ((span, body),) = bodies([{"x": noise(room)}]).items()
    assert (span.members, payloads_of({"body": body}, 1)) == (1, [{"x": noise(room)}])
    with pytest.raises(InvalidInput, match=r"^payloads\[7\]: '102401 bytes' is not accepted; expected at most 102400"):
        payload_text({"x": noise(room + 1)}, 7)
    with pytest.raises(InvalidInput, match=r"^payloads\[7\]: '102406 bytes'"):
        payload_text({"x": noise(room - 6) + "é" + "é"}, 7)  # as JSON, in ASCII


@pytest.mark.parametrize("payload", [5, "x", [1], {1: 2}, {"x": float("nan")}, {"x": object()}])
def test_a_payload_that_no_body_can_hold(payload: object) -> None:
    with pytest.raises(InvalidInput, match=r"^payloads\[3\]: "):
        payload_text(payload, 3)


def test_numbers_keep_their_digits() -> None:
    precise = {"n": Decimal("0.1234567890123456789"), "whole": 10**30}
    ((_, body),) = bodies([precise]).items()
    assert payloads_of({"body": body}, 1) == [precise]


def test_a_bomb_is_not_decompressed() -> None:
    bomb = zlib.compress(json.dumps([{"x": "0" * 50_000_000}]).encode())
    assert len(bomb) < 100_000
    with pytest.raises(InvalidInput, match=r"^pack: 'a malformed body'"):
        payloads_of({"body": bomb}, 1)


@pytest.mark.parametrize("body", [None, {}, {"body": "x"}, {"body": b"x"}, {"body": zlib.compress(b"{}")}])
def test_a_malformed_body(body: dict[str, object] | None) -> None:
    with pytest.raises(InvalidInput, match=r"^pack: "):
        payloads_of(body, 1)


def test_a_pack_row_says_how_its_members_stand() -> None:
    pack = Pack(batch_id="news", span=Span(500, 12), done=0b1000_0000_0001, extracted=0b1100).with_excluded(1)
    row = {"taskId": "news/000000500-000000511", "pack": pack.to_attribute()}
    assert Pack.of(row) == pack
    assert list(pack.open()) == [4, 5, 6, 7, 8, 9, 10]
    assert pack.to_attribute()["done"] == bytes([0b1, 0b1000])
    assert Pack.of({"taskId": "x"}) is None


@pytest.mark.parametrize(
    ("pack", "row", "expected"),
    [
        ({}, {"status": "scheduled", "attempt": 0}, {"status": "scheduled", "attempt": 0}),
        ({"done": 0b10}, {"status": "running", "attempt": 1, "startedAt": "s"},
         {"status": "completed", "outcome": "completed", "attempt": 1, "startedAt": "s"}),
        ({"excluded": 0b10}, {"status": "completed", "outcome": "completed", "attempt": 1, "startedAt": "s"},
         {"status": "cancelled", "outcome": "cancelled", "attempt": 0}),
        ({}, {"status": "failed", "outcome": "failed", "error": "no body", "expiresAt": 5},
         {"status": "failed", "outcome": "failed", "error": "no body", "expiresAt": 5}),
        ({"done": 0b10}, {"status": "failed", "outcome": "failed", "error": "no body"},
         {"status": "completed", "outcome": "completed"}),
        ({}, {"status": "running", "lease": "t", "leaseUntil": "l", "tenant": "t1", "members": 5},
         {"status": "running", "leaseUntil": "l", "tenant": "t1", "members": 5}),
    ],
)  # fmt: skip
def test_a_member_as_the_row_that_it_would_have(
    pack: dict[str, int], row: dict[str, object], expected: dict[str, object]
) -> None:
    own = Pack(batch_id="news", span=Span(10, 4), **pack)
    whole = {"taskId": "news/000000010-000000013", "pack": own.to_attribute(), **row}
    assert row_of_member(whole, own, 1, {"n": 11}) == {
        "taskId": "news/000000011", "payload": {"n": 11}, "batchId": "news", **expected,
    }  # fmt: skip


def test_what_two_batches_differ_in() -> None:
    one = Batch.of_payload({"action": "log", "dueAt": "2026-12-31T12:00:00Z", "overSeconds": 0, "total": 5})
    other = Batch.of_payload({"action": "log", "dueAt": "2026-12-31T13:00:00Z", "overSeconds": 0, "members": 5})
    assert one.differences(one) == {}
    assert one.differences(other) == {"dueAt": ("2026-12-31T12:00:00Z", "2026-12-31T13:00:00Z")}
    more = Batch.of_payload({**other.to_payload(), "total": 6, "then": {"action": "x"}, "ofMembers": {"subject": "s"}})
    assert set(one.differences(more)) == {"dueAt", "total", "then", "ofMembers"}
    for name in ("total", "members"):
        for wrong in (-1, "x", 1.5, True, 100_000_001):
            with pytest.raises(InvalidInput, match=rf"^{name}: "):
                Batch.of_payload({**one.to_payload(), name: wrong})
    for name in ("then", "ofMembers"):
        with pytest.raises(InvalidInput, match=rf"^{name}: "):
            Batch.of_payload({**one.to_payload(), name: "x"})
