-- Keeps others from putting schedules at the same time, and relays from firing them.
-- Index: none. Locks: the table, alone but for those who read.
lock table postrider.schedule in share row exclusive mode
