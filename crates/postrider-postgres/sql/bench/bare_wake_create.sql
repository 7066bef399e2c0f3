-- Makes every statement that writes bare rows notify.
-- Index: none. Locks: the bare table against writers.
create or replace trigger wake
after insert on postrider_bench.event
for each statement execute function postrider_bench.wake()
