-- Whether producers wake relays that sleep.
-- Index: pg_trigger's own. Locks: none.
select exists (
    select from pg_catalog.pg_trigger
    where tgrelid = 'postrider.event'::regclass
        and tgname = 'wake'
        and tgenabled in ('O', 'A')
)
