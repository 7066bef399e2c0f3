-- Registers a process.
-- Index: primary key. Locks: the writer lock.
insert into postrider_member (name, pid, pid_namespace, boot_id, started, joined_at, beat_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
