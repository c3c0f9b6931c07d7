"""Which engine measures what next: pure, without a cluster."""

from __future__ import annotations

from torchbench_magic.cluster.timing import HostQueues, Share


def numbers(begun: list[tuple[int, Share]]) -> list[tuple[int, int]]:
    return [(engine, job.number) for engine, job in begun]


def queues(hosts: dict[int, str], points: int) -> HostQueues:
    return HostQueues(hosts, [Share(number) for number in range(points)])


def test_a_host_has_one_engine_at_work_and_hosts_work_side_by_side() -> None:
    made = queues({0: "a", 1: "a", 2: "b"}, 3)
    assert numbers(made.due()) == [(0, 0), (2, 1)]
    assert made.due() == []
    made.finish(2)
    assert numbers(made.due()) == [(2, 2)]
    made.finish(0)
    assert made.due() == []
    made.finish(2)
    assert not made.is_open


def test_where_all_measure_the_same_engines_of_a_host_take_turns() -> None:
    made = HostQueues({0: "a", 1: "a", 2: "b"}, [Share(each, each) for each in (0, 1, 2)])
    assert numbers(made.due()) == [(0, 0), (2, 2)]
    made.finish(0)
    assert numbers(made.due()) == [(1, 1)]


def test_the_work_of_an_engine_that_dies_is_the_next_of_another_one_of_its_host() -> None:
    made = queues({0: "a", 1: "b", 2: "b"}, 2)
    made.due()
    made.finish(0)
    made.lose(1)
    assert numbers(made.due()) == [(2, 1)]


def test_it_goes_to_another_host_where_its_own_has_none_left() -> None:
    made = queues({0: "a", 1: "b"}, 2)
    made.due()
    made.lose(1)
    assert made.due() == []
    made.finish(0)
    assert numbers(made.due()) == [(0, 1)]
    assert made.at_work[0].lost == (1,)


def test_what_has_ended_two_engines_is_left_over_and_the_rest_goes_on() -> None:
    made = queues({0: "a", 1: "a", 2: "a"}, 2)
    for engine in (0, 1):
        assert numbers(made.due()) == [(engine, 0)]
        made.lose(engine)
    assert [job.number for job in made.left_over] == [0]
    assert numbers(made.due()) == [(2, 1)]


def test_an_engine_that_is_merely_unsuitable_costs_its_work_no_try() -> None:
    made = queues({0: "a", 1: "a", 2: "a"}, 1)
    for engine in (0, 1):
        made.due()
        made.lose(engine, dies_over_it=False)
    assert numbers(made.due()) == [(2, 0)]


def test_without_an_engine_all_that_waits_is_left_over() -> None:
    made = queues({0: "a"}, 3)
    made.due()
    made.lose(0)
    assert made.due() == []
    assert not made.is_open
    assert [job.number for job in made.left_over] == [0, 1, 2]


def test_what_one_engine_alone_may_do_is_left_over_when_it_dies() -> None:
    made = HostQueues({0: "a", 1: "a"}, [Share(0, 0), Share(1, 1)])
    made.due()
    made.lose(0)
    assert [job.number for job in made.left_over] == [0]
    assert numbers(made.due()) == [(1, 1)]
