"""What is counted of a request and its answer."""

from __future__ import annotations

from dynatick_stack.counting.counts import Count, Counts


def test_a_batch_counts_each_statement_and_each_refusal() -> None:
    counts = Counts({})
    counts.note(
        "BatchExecuteStatement",
        {"Statements": [{"Statement": 'UPDATE "t" …'}, {"Statement": 'UPDATE "t" …'}]},
        {
            "Responses": [{"Item": {}}, {"Error": {"Code": "ConditionalCheckFailed"}}],
            "ConsumedCapacity": [{"CapacityUnits": 2.0}, {"CapacityUnits": 1.0}],
        },
        bytes_in=100,
        bytes_out=50,
    )
    expected = Count(writes=1, statements=2, write_units=3, refused=1, bytes_in=100, bytes_out=50)
    assert counts.total == expected
    assert counts.total.calls == 1


def test_a_batch_of_selects_reads() -> None:
    counts = Counts({})
    request = {"Statements": [{"Statement": ' select * FROM "t" …'}]}
    counts.note("BatchExecuteStatement", request, {"Responses": [{}], "ConsumedCapacity": [{"CapacityUnits": 0.5}]})
    assert counts.total == Count(reads=1, statements=1, read_units=0.5)


def test_a_refused_write_costs_all_the_same() -> None:
    counts = Counts({})
    counts.note("UpdateItem", {}, {"__type": "#ConditionalCheckFailedException"}, more_units=2)
    assert counts.total == Count(writes=1, statements=1, write_units=2, refused=1)


def test_tables_and_streams_are_not_counted() -> None:
    counts = Counts({})
    counts.note("CreateTable", {}, {})
    counts.note("GetRecords", {}, {})
    assert counts.total == Count()


def test_the_difference_of_two_readings() -> None:
    counts = Counts({})
    counts.note("GetItem", {}, {"ConsumedCapacity": {"CapacityUnits": 1.0}})
    before = Counts.from_json(counts.to_json())
    counts.note("Query", {}, {"ConsumedCapacity": {"CapacityUnits": 12.5}})
    since = counts - before
    assert since.by_operation == {"Query": Count(reads=1, statements=1, read_units=12.5)}
    assert (since + before).total == counts.total
