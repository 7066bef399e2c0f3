-- A place for what benchmarks compare with.
-- Index: none. Locks: none that anybody waits for.
create schema if not exists postrider_bench
