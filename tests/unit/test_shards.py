"""Shards: stable groups, whatever comes and goes around them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleetcraft.experiment.prompts import Prompt
from fleetcraft.experiment.seeds import Seeds
from fleetcraft.experiment.shards import Shard, Shards, SuiteShards

prompts = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=40, unique=True)
seeds = st.lists(st.integers(min_value=0, max_value=2**63 - 1), min_size=1, max_size=6, unique=True)
sizes = st.integers(min_value=1, max_value=9)


def shards_of(texts: list[str], numbers: list[int], size: int) -> dict[str, Shard[str]]:
    shards = Shards(texts, texts, numbers, size).values()
    by_name = {shard.name: shard for shard in shards}
    assert len(by_name) == len(shards), "names are unique"
    return by_name


def pairs(shard: Shard[str]) -> set[tuple[str, int]]:
    return {(prompt, seed) for prompt in shard.prompts for seed in shard.seeds}


@given(texts=prompts, numbers=seeds, size=sizes)
def test_every_pair_is_in_exactly_one_shard_of_bounded_size(texts: list[str], numbers: list[int], size: int) -> None:
    shards = shards_of(texts, numbers, size)
    assert all(1 <= len(shard) <= size for shard in shards.values())
    together = [pair for shard in shards.values() for pair in pairs(shard)]
    assert sorted(together) == sorted((text, number) for text in texts for number in numbers)


@given(texts=prompts, numbers=seeds, size=sizes, seed=st.randoms())
def test_the_order_of_prompts_and_seeds_does_not_count(
    texts: list[str], numbers: list[int], size: int, seed: object
) -> None:
    before = shards_of(texts, numbers, size)
    seed.shuffle(texts)  # type: ignore[attr-defined]
    seed.shuffle(numbers)  # type: ignore[attr-defined]
    assert shards_of(texts, numbers, size) == before


@given(texts=prompts.filter(lambda texts: len(texts) > 1), numbers=seeds, size=sizes)
def test_an_added_prompt_touches_only_the_shards_that_it_falls_into(
    texts: list[str], numbers: list[int], size: int
) -> None:
    before, after = shards_of(texts[:-1], numbers, size), shards_of(texts, numbers, size)
    if len(texts) - 1 <= size < len(texts) or size // len(texts) != size // (len(texts) - 1):
        return  # the number of seeds that share a shard changes with the number of prompts
    touched = {name for name in before if after.get(name) != before[name]}
    new_pairs = {(texts[-1], number) for number in numbers}
    changed = {pair for name in after if before.get(name) != after[name] for pair in pairs(after[name])}
    assert changed == new_pairs | {pair for name in touched for pair in pairs(before[name])}
    assert len(touched) <= len(numbers)


@given(texts=prompts, numbers=seeds.filter(lambda numbers: len(numbers) > 1), size=sizes)
def test_an_added_seed_leaves_other_seeds_shards_alone_where_prompts_fill_them(
    texts: list[str], numbers: list[int], size: int
) -> None:
    before, after = shards_of(texts, numbers[:-1], size), shards_of(texts, numbers, size)
    if size // len(texts) < 2:
        assert before.items() <= after.items()
    else:
        assert sum(after.get(name) != shard for name, shard in before.items()) <= 1


def test_seeds_share_a_shard_from_twice_as_many_places_as_prompts_on_and_a_prompt_more_parts_them() -> None:
    def seeds_of(texts: str, numbers: list[int], size: int) -> list[tuple[int, ...]]:
        return [shard.seeds for shard in shards_of([*texts], numbers, size).values()]

    assert seeds_of("abcd", [0, 1, 2, 3], 7) == [(0,), (1,), (2,), (3,)]
    assert seeds_of("abcd", [0, 1, 2, 3], 8) == [(0, 1), (2, 3)]
    assert seeds_of("abcde", [0, 1, 2, 3], 8) == [(0,), (1,), (2,), (3,)]
    assert seeds_of("abcd", [0, 1, 2], 12) == [(0, 1, 2)]
    assert seeds_of("abcd", [0, 1, 2, 3], 12) == [(0, 1), (2, 3)], "a seed too many halves them"


def test_names_tell_seed_and_place() -> None:
    assert [shard.name for shard in Shards("ab", "ab", [3], 4).values()] == ["all"]
    assert [shard.name for shard in Shards("ab", "ab", [0, 1, 8], 4).values()] == ["s0-7", "s8-15"]
    assert [shard.name for shard in Shards("abc", "abc", [3, 4], 4).values()] == ["s3", "s4"]
    assert all(shard.name.startswith("s3-p") for shard in Shards("abcdef", "abcdef", [3], 4).values())


def suite_prompts(texts: list[str], some: set[str]) -> list[Prompt]:
    return [Prompt(text, frozenset({"temporal_flickering"} if text in some else {"scene"})) for text in texts]


@given(texts=prompts, numbers=seeds, size=sizes, data=st.data())
def test_further_seeds_only_add_shards_which_have_the_prompts_of_their_dimension(
    texts: list[str], numbers: list[int], size: int, data: st.DataObject
) -> None:
    some = data.draw(st.sets(st.sampled_from(texts), min_size=1))
    further = data.draw(seeds.filter(lambda drawn: not {*drawn} & {*numbers}))
    chosen = suite_prompts(texts, some)
    before = dict(SuiteShards(chosen, Seeds(numbers, {}), size))
    after = SuiteShards(chosen, Seeds(numbers, {"temporal_flickering": further}), size)
    assert before.items() <= dict(after).items()
    # As they were before there were any further seeds.
    plain = shards_of(texts, numbers, size)
    assert {name: (shard.seeds, [one.text for one in shard.prompts]) for name, shard in before.items()} == {
        name: (shard.seeds, [*shard.prompts]) for name, shard in plain.items()
    }
    added = [after[name] for name in after if name not in before]
    assert len(after) == len(before) + len(added) == len({*after})
    assert all(shard.name == name for name, shard in after.items())
    assert all(shard.further == "temporal_flickering" and 1 <= len(shard) <= size for shard in added)
    pairs_added = sorted((prompt.text, seed) for shard in added for prompt, seed in shard.pairs)
    assert pairs_added == sorted((text, seed) for text in some for seed in further)
