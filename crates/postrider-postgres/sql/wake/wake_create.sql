-- Makes producers wake relays that sleep, by a trigger that was switched off too.
-- Index: none. Locks: the log's table against writers, which it waits for and which wait for it; the leaves not.
create or replace trigger wake
after insert on postrider.event
for each statement execute function postrider.wake()
