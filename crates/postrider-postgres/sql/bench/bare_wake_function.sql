-- Notifies at every commit, as a trigger does that knows nothing about who sleeps.
-- Index: none. Locks: none that anybody waits for.
create or replace function postrider_bench.wake() returns trigger
language plpgsql volatile
as $$
begin
    perform pg_notify('postrider_bare', '0');
    return null;
end
$$
