-- Whether this session may read the audit; a relay may not.
-- Index: those of the catalogue. Locks: none.
select has_table_privilege('postrider.audit', 'select')
