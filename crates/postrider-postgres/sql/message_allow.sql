-- Lets messages be written for a while, or no longer.
-- Index: none. Locks: the sequence's page, for an instant.
select postrider.message_allow($1)
