-- Whether anything may be claimed: that has not failed yet, or that has, if it is wanted (?2).
-- Index: postrider_queued_ready, postrider_queued_again. Locks: none.
select 1
where exists (
    select 1
    from postrider_queued indexed by postrider_queued_ready
    where subscription_id = ?1
        and state = 'ready'
        and finished = 0
)
or (?2 and exists (
    select 1
    from postrider_queued indexed by postrider_queued_again
    where subscription_id = ?1
        and state = 'ready'
        and finished > 0
))
