-- Changes when any other connection commits; nothing new can be visible while it does not.
-- Index: none. Locks: none.
pragma data_version
