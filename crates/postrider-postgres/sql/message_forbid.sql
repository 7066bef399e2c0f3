-- No more messages. Where there are none, nothing changes.
-- Index: none. Locks: the sequence's page, for an instant.
select postrider.message_allow(null)
