"""The caching allocator, on the toy's 64 MiB."""

from __future__ import annotations


def test_reuse_in_stream_order(with_toy):
    out = with_toy("""
a = rt.allocate(0, 1000, stream)
rt.deallocate(a)
b = rt.allocate(0, 1000, stream)
other = rt.pool_stream(0, 0, 1)
rt.deallocate(b)
c = rt.allocate(0, 1000, other)
print(a == b, b == c, rt.block_size(c), rt.allocate(0, 0, stream))
""")
    assert out.split() == ["True", "False", "1024", "0"]


def test_blocks_do_not_overlap(with_toy):
    out = with_toy("""
import random
random.seed(1)
live = {}
for step in range(20000):
    if live and random.random() < 0.5:
        rt.deallocate(live.pop(random.choice(list(live)))[0])
    else:
        size = random.choice([1, 511, 512, 513, 4096, 100_000, 1 << 20, (1 << 20) + 1, 3 << 20])
        if sum(s for _, s in live.values()) + size > 30 << 20:
            continue
        pointer = rt.allocate(0, size, stream)
        assert pointer % 512 == 0 or pointer % 64 == 0
        live[step] = (pointer, size)
    if step % 500 == 0:
        spans = sorted(live.values())
        assert all(a + s <= b for (a, s), (b, _) in zip(spans, spans[1:]))
stats = rt.memory_stats(0)
assert stats["requested_bytes.all.current"] == sum(s for _, s in live.values())
assert stats["allocation.all.current"] == len(live)
for pointer, _ in live.values():
    rt.deallocate(pointer)
rt.empty_cache(0)
stats = rt.memory_stats(0)
print([stats[f"{k}.all.current"] for k in
       ("allocated_bytes", "reserved_bytes", "active_bytes", "segment", "inactive_split")])
""")
    assert out.strip() == "[0, 0, 0, 0, 0]"


def test_out_of_memory_shows_the_map_and_the_process_goes_on(with_toy):
    out = with_toy("""
keep = [rt.allocate(0, 12 << 20, stream) for _ in range(4)]
try:
    rt.allocate(0, 40 << 20, stream)
except rt.Error as error:
    print(error)
    print("status", error.status, rt.memory_stats(0)["num_ooms"])
for pointer in keep:
    rt.deallocate(pointer)
big = rt.allocate(0, 40 << 20, stream)   # the cache is freed and the call tried again
print("retries", rt.memory_stats(0)["num_alloc_retries"])
""")
    assert "tried to allocate 40.00 MiB on device 0 (toy:0, Toy)" in out
    assert "memory map of toy:0" in out
    assert "[########################################] 12.00 MiB" in out
    assert "status 3 1" in out
    assert "retries 2" in out


def test_record_stream_keeps_the_block_until_the_stream_has_passed(with_toy):
    out = with_toy("""
other = rt.pool_stream(0, 0, 0)
a = rt.allocate(0, 4096, stream)
rt.record_stream(a, other)
rt.deallocate(a)
active = rt.memory_stats(0)["active_bytes.all.current"]
b = rt.allocate(0, 4096, stream)  # the toy's streams have always passed
print(active, a == b)
""")
    assert out.split() == ["4096", "True"]


def test_private_pool_keeps_its_memory(with_toy):
    out = with_toy("""
rt.begin_private_pool(0, 7)
a = rt.allocate(0, 4096, stream)
rt.deallocate(a)
again = rt.allocate(0, 4096, stream)
rt.end_private_pool(0, 7)
rt.deallocate(again)
rt.empty_cache(0)
outside = rt.allocate(0, 4096, stream)
before = rt.memory_stats(0)["segment.all.current"]
rt.release_private_pool(0, 7)
rt.empty_cache(0)
after = rt.memory_stats(0)["segment.all.current"]
print(a == again, outside != a, before, after)
""")
    assert out.split() == ["True", "True", "2", "1"]


def test_errors_name_the_pointer_fault(with_toy):
    out = with_toy("""
a = rt.allocate(0, 4096, stream)
for wrong in (lambda: rt.deallocate(a + 512), lambda: rt.allocate(3, 1, stream),
              lambda: (rt.deallocate(a), rt.deallocate(a))):
    try:
        wrong()
    except rt.Error as error:
        print(error)
""")
    lines = out.splitlines()
    assert "not the start of a block" in lines[0]
    assert "there is no device 3; 1 present" in lines[1]
    assert "freed before" in lines[2]


def test_owner_of(with_toy):
    out = with_toy(
        """
a = rt.allocate(1, 4096, rt.default_stream(1))
print(rt.owner_of(a + 100), rt.owner_of(1234), rt.owner_of(0))
""",
        devices="2",
    )
    assert out.split() == ["1", "-1", "-1"]


def test_page_locked_memory(with_toy):
    out = with_toy("""
a = rt.allocate_host(0, 5000)
print(rt.is_pinned(a), rt.is_pinned(a + 4999), rt.is_pinned(a - 1), rt.record_host(a, stream))
rt.deallocate_host(a)
print(rt.is_pinned(a))
print(rt.allocate_host(0, 6000) == a)
""")
    assert out.split() == ["True", "True", "False", "True", "False", "True"]


def test_without_cache_each_block_is_its_own(with_toy):
    out = with_toy(
        """
a = rt.allocate(0, 1000, stream)
print(rt.block_size(a), rt.memory_stats(0)["reserved_bytes.all.current"])
rt.deallocate(a)
rt.allocate(0, 8, stream)
print(rt.memory_stats(0)["reserved_bytes.all.current"])
""",
        env={"CHIPSET_CACHING": "0"},
    )
    assert out.split() == ["1000", "1000", "8"]


def test_use_after_fork_is_an_error(with_toy):
    out = with_toy("""
import os
kept = dev.array(np.ones(4, np.float32))
child = os.fork()
if child == 0:
    try:
        rt.allocate(0, 8, stream)
    except rt.Error as error:
        os._exit(0 if "spawn" in str(error) and rt.in_bad_fork() else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), kept.numpy().sum())
""")
    assert out.split() == ["0", "4.0"]
