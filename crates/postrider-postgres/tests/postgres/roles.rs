//! Each role can do what it is for, and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use postrider_core::schedule::{Fire, Fired, due};
use postrider_core::store::{DeadLetterQuery, EventQuery, Payloads};
use postrider_core::{
    DeliveryState, ErrorKind, Event, Key, LogStore, Missed, NewSchedule, NewSubscription, Result,
    ScheduleStore, ShardSet, Start, Store, Tuning, emit,
};
use postrider_postgres::tokio_postgres::error::SqlState;
use postrider_postgres::tokio_postgres::{self, Client, NoTls};
use postrider_postgres::{Pooler, PostgresOptions, PostgresStore, RoleKind, Roles};
use postrider_testkit::conformance::owner::{Owner, ids};
use postrider_testkit::postgres::Version;

use crate::scene::{Row, Scene};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// What the roles may do, as reviewed.
const MANIFEST: &str = include_str!("roles.txt");

on_each_version!(
    rights_are_those_that_were_reviewed,
    roles_that_are_made_again_lose_what_they_were_given_meanwhile,
    a_producer_emits_and_reads_nothing,
    a_relay_delivers_and_removes_old_events,
    a_relay_delivers_through_a_pooler,
    a_relay_can_neither_emit_nor_do_what_operators_do,
    a_relay_ends_what_one_of_its_own_role_has_left_open,
    an_operator_manages_subscriptions_and_dead_letters,
    an_operator_can_neither_remove_events_nor_change_the_audit,
    a_reader_sees_all_but_payloads_and_headers,
    a_reader_changes_nothing,
    each_role_has_its_part_in_schedules,
    functions_that_run_as_the_owner_are_closed,
    a_role_that_may_not_create_roles_is_told_so,
);

/// A store with its roles, and a login for each.
pub(crate) struct Cast {
    pub(crate) scene: Scene,
    pub(crate) roles: Roles,
}

impl Cast {
    pub(crate) async fn new(version: Version) -> Self {
        let scene = Scene::on(version).await;
        // Roles belong to the whole server, which other tests use too.
        let roles = Roles::new("postrider", &scene.db.name).unwrap();
        scene.store.roles_create(&roles).await.unwrap();
        scene.run("grant select on public.test_clock to public");
        for kind in RoleKind::ALL {
            scene.run(&format!("create role {0}_login login in role {0}", roles.name(kind)));
        }
        Self { scene, roles }
    }

    fn url(&self, kind: RoleKind) -> String {
        self.scene.db.url.replace("postgres@", &format!("{}_login@", self.roles.name(kind)))
    }

    pub(crate) async fn store(&self, kind: RoleKind) -> PostgresStore {
        let options = PostgresOptions::from_url(&self.url(kind)).unwrap().lease(Duration::from_secs(1));
        PostgresStore::open(options).await.unwrap()
    }

    pub(crate) async fn client(&self, kind: RoleKind) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(kind), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Rights on objects of the schema that the server gives a role, whichever role has granted them.
    fn rights(&self, kind: RoleKind) -> String {
        let (role, word) = (self.roles.name(kind), kind.word());
        let mut lines: BTreeMap<String, String> = BTreeMap::new();
        for row in self.scene.db.query(&RIGHTS.replace("$role", &format!("'{role}'"))) {
            lines.insert(row[0].clone().unwrap(), row[1].clone().unwrap());
        }
        // Leaves are alike, as far as they are.
        let leaf = |n: u8| format!("table event_{n}");
        if let Some(first) = lines.get(&leaf(0)).cloned()
            && (0..16).all(|n| lines.get(&leaf(n)) == Some(&first))
        {
            (0..16).for_each(|n| drop(lines.remove(&leaf(n))));
            lines.insert("table event_0 to event_15".to_owned(), first);
        }
        lines.into_iter().fold(String::new(), |mut text, (object, rights)| {
            writeln!(text, "{word}: {object}: {rights}").unwrap();
            text
        })
    }

    fn all_rights(&self) -> String {
        RoleKind::ALL.map(|kind| self.rights(kind)).join("\n")
    }
}

const RIGHTS: &str = "
    select object, string_agg(right_, ', ' order by right_) from (
        select 'schema' as object, lower(p) as right_
        from pg_namespace, unnest(array['USAGE', 'CREATE']) as p
        where nspname = 'postrider' and has_schema_privilege($role, oid, p)
        union all
        select 'table ' || relname, lower(p)
        from pg_class as c, unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) as p
        where relnamespace = 'postrider'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'f')
            and has_table_privilege($role, c.oid, p)
        union all
        select 'table ' || relname, lower(p) || ' (' || string_agg(attname, ' ' order by attnum) || ')'
        from pg_class as c
        join pg_attribute as a on attrelid = c.oid and attnum > 0 and not attisdropped,
            unnest(array['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) as p
        where relnamespace = 'postrider'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'f')
            and not has_table_privilege($role, c.oid, p) and has_column_privilege($role, c.oid, attnum, p)
        group by relname, p
        union all
        select 'sequence ' || relname, lower(p)
        from pg_class as c, unnest(array['USAGE', 'SELECT', 'UPDATE']) as p
        where relnamespace = 'postrider'::regnamespace and relkind = 'S' and has_sequence_privilege($role, c.oid, p)
        union all
        select distinct 'function ' || proname, 'execute'
        from pg_proc
        where pronamespace = 'postrider'::regnamespace and has_function_privilege($role, oid, 'EXECUTE')
    ) as rights
    group by object";

/// Refused for want of the right, and the connection stays usable.
pub(crate) async fn refused(client: &Client, statements: &[&str]) {
    for sql in statements {
        let error = client.batch_execute(sql).await.expect_err(sql);
        assert_eq!(error.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{sql}: {error:?}");
    }
}

fn lacks_the_right<T: std::fmt::Debug>(done: Result<T>) {
    let error = done.expect_err("this role may not");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains("this role lacks the right"), "{error}");
}

fn all_letters() -> DeadLetterQuery {
    DeadLetterQuery { subscription: None, event_id: None, after: None, limit: 100 }
}

async fn rights_are_those_that_were_reviewed(version: Version) {
    let rights = Cast::new(version).await.all_rights();
    assert_eq!(rights, MANIFEST, "\nIf this is wanted, review it and make it roles.txt:\n{rights}");
}

async fn roles_that_are_made_again_lose_what_they_were_given_meanwhile(version: Version) {
    let cast = Cast::new(version).await;
    let reader = cast.roles.name(RoleKind::Reader);
    cast.scene.run(&format!(
        "grant select on postrider.event, postrider.event_3 to {reader}; grant create on schema postrider to {reader};
         grant select (payload) on postrider.kept_event to {reader}; grant execute on function postrider.event_emit to {reader}"
    ));
    assert_ne!(cast.all_rights(), MANIFEST);
    cast.scene.store.roles_create(&cast.roles).await.unwrap();
    assert_eq!(cast.all_rights(), MANIFEST);
    // As those do it who run the script themselves.
    cast.scene.run(&cast.roles.sql());
    assert_eq!(cast.all_rights(), MANIFEST);
}

async fn a_producer_emits_and_reads_nothing(version: Version) {
    let cast = Cast::new(version).await;
    let mut client = cast.client(RoleKind::Producer).await;
    let tx = client.transaction().await.unwrap();
    emit(&tx, Event::new("order").key(1).due_after(DAY)).await.unwrap();
    emit(&tx, Event::new("order").key(1).idempotency_key("once")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(cast.scene.events(), 2);
    let statements = [
        "select payload from postrider.event",
        "select * from postrider.event_0",
        "select * from postrider.subscription",
        "update postrider.meta set value = ''",
        "select * from postrider.idempotency",
        "insert into postrider.superseded values (1)",
        "insert into postrider.event (topic, type, xid) values ('a', 'b', '7')",
        "insert into postrider.event (topic, type, id) overriding system value values ('a', 'b', 7)",
        "delete from postrider.event",
        "truncate postrider.event_0",
        "select setval('postrider.event_id_seq', 1)",
    ];
    refused(&client, &statements).await;
}

async fn a_relay_delivers_and_removes_old_events(version: Version) {
    let cast = Cast::new(version).await;
    let scene = &cast.scene;
    let relay = cast.store(RoleKind::Relay).await;
    // It makes its own subscription, as a program does that brings its handlers.
    let owner = Owner::create(&relay, NewSubscription::new("mail")).await.unwrap();
    let emitted = scene.emit(&["a", "b", "a"]).await;
    assert_eq!(ids(&owner.read_all().await.unwrap()), emitted);
    owner.settle_rows(emitted[2], Vec::new()).await.unwrap();
    relay.member_beat(owner.member).await.unwrap();
    relay.subscription_tune("mail", Tuning::default()).await.unwrap();
    // A second owner begins where the first has left off.
    relay.shards_release(owner.hold()).await.unwrap();
    // Retention: the ring turns, the old leaf is emptied, positions move to the other table.
    scene.pass(DAY * 3);
    let mut removed = 0;
    for _ in 0..4 {
        removed += relay.prune(DAY).await.unwrap().removed;
        scene.pass(DAY * 3);
    }
    assert_eq!((removed, scene.events()), (3, 0));
    assert_eq!(relay.subscription_report("mail").await.unwrap().lag_events, 0);
    relay.check().await.unwrap();
    relay.stats().await.unwrap();
}

/// No pooler need be there for what it demands.
async fn a_relay_delivers_through_a_pooler(version: Version) {
    let cast = Cast::new(version).await;
    let options = PostgresOptions::from_url(&cast.url(RoleKind::Relay)).unwrap().pooler(Pooler::Transaction);
    let relay = PostgresStore::open(options).await.unwrap();
    let owner = Owner::create(&relay, NewSubscription::new("mail")).await.unwrap();
    let emitted = cast.scene.emit(&["a", "b"]).await;
    assert_eq!(ids(&owner.read_all().await.unwrap()), emitted);
    owner.settle_rows(emitted[1], Vec::new()).await.unwrap();
    relay.shards_release(owner.hold()).await.unwrap();
}

async fn a_relay_can_neither_emit_nor_do_what_operators_do(version: Version) {
    let cast = Cast::new(version).await;
    let relay = cast.store(RoleKind::Relay).await;
    relay.subscription_create(NewSubscription::new("mail")).await.unwrap();
    let id = cast.scene.emit(&["a"]).await[0];
    cast.scene.put("mail", &Row::dead(id, "a"));
    lacks_the_right(relay.event_emit(vec![Event::new("order")]).await);
    lacks_the_right(relay.subscription_pause("mail").await);
    lacks_the_right(relay.subscription_seek("mail", Start::Oldest, "ann").await);
    lacks_the_right(relay.subscription_delete("mail", "ann").await);
    lacks_the_right(relay.dead_letter_discard(all_letters(), "ann").await);
    let client = cast.client(RoleKind::Relay).await;
    let statements = [
        "update postrider.event set topic = 'c'",
        "delete from postrider.event_0",
        "truncate postrider.event",
        "truncate postrider.delivery",
        "truncate postrider.audit",
        "update postrider.delivery set edited_payload = '{}'",
        "delete from postrider.subscription",
        "select key from postrider.idempotency",
        "insert into postrider.superseded values (1)",
        "select * from postrider.audit",
        "insert into postrider.event_0 (topic, type) values ('a', 'b')",
        "select postrider.emit('a', 'b')",
        "create table postrider.mine (a int)",
        "drop table postrider.audit",
    ];
    refused(&client, &statements).await;
}

async fn a_relay_ends_what_one_of_its_own_role_has_left_open(version: Version) {
    let cast = Cast::new(version).await;
    let relay = cast.store(RoleKind::Relay).await;
    relay.subscription_create(NewSubscription::new("mail")).await.unwrap();
    let bob = relay.member_join("bob").await.unwrap();
    relay.shards_take("mail", bob, ShardSet::ALL).await.unwrap().unwrap();
    let gone = cast.client(RoleKind::Relay).await;
    // As a settle holds it, of a process that was stopped in the middle of it.
    let lock = include_str!("../../sql/ownership/lock/lock_settle.sql")
        .replace("$1", "(select id from postrider.subscription)")
        .replace("$2", &bob.0.to_string());
    let lock = format!("begin; {lock}");
    gone.batch_execute(&lock).await.unwrap();
    cast.scene.run("update postrider.member set beat_at = '2001-01-01'");
    let pid: i32 = gone.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let idle = format!(
        "select state_change < clock_timestamp() - interval '100 ms' and state = 'idle in transaction'
         from pg_stat_activity where pid = {pid}"
    );
    cast.scene.wait_until(&idle).await;
    let member = relay.member_join("ada").await.unwrap();
    assert!(relay.shards_take("mail", member, ShardSet::ALL).await.unwrap().is_some());
    gone.batch_execute("select").await.expect_err("its session was ended");
    // Sessions of others are none of its business.
    let other = cast.client(RoleKind::Operator).await;
    let pid: i32 = other.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let client = cast.client(RoleKind::Relay).await;
    refused(&client, &[&format!("select pg_terminate_backend({pid})")]).await;
}

async fn an_operator_manages_subscriptions_and_dead_letters(version: Version) {
    let cast = Cast::new(version).await;
    let (scene, operator) = (&cast.scene, cast.store(RoleKind::Operator).await);
    operator.subscription_create(NewSubscription::new("mail")).await.unwrap();
    let emitted = scene.emit(&["a", "b", "c"]).await;
    operator.subscription_tune("mail", Tuning::default()).await.unwrap();
    assert!(operator.subscription_pause("mail").await.unwrap().paused_at.is_some());
    assert!(operator.subscription_resume("mail").await.unwrap().paused_at.is_none());
    operator.subscription_seek("mail", Start::Now, "ann").await.unwrap();
    for (id, key) in emitted.iter().zip(["a", "b", "c"]) {
        scene.put("mail", &Row::dead(*id, key));
    }
    let letters = operator.dead_letter_list(all_letters()).await.unwrap();
    assert_eq!(letters.len(), 3);
    assert_eq!(&letters[0].event.payload[..], b"{}", "an operator reads payloads");
    operator.dead_letter_edit(&letters[0].letter, "{\"a\":1}".into(), "ann").await.unwrap();
    let one = |n: usize| DeadLetterQuery { event_id: Some(emitted[n]), ..all_letters() };
    assert_eq!(operator.dead_letter_replay(one(0), "ann").await.unwrap(), 1);
    assert_eq!(operator.dead_letter_discard(one(1), "ann").await.unwrap(), 1);
    assert_eq!(scene.stands("mail", emitted[0]).await.state, DeliveryState::Pending);
    operator.subscription_seek("mail", Start::Oldest, "ann").await.unwrap();
    assert_eq!(operator.check().await.unwrap(), Vec::<String>::new());
    operator.stats().await.unwrap();
    operator.subscription_delete("mail", "ann").await.unwrap();
    let lines = scene.number("select count(*) from postrider.audit where actor = 'ann'");
    assert_eq!(lines, 6, "two seeks, an edit, a replay, a discard, a deletion");
    assert_eq!(scene.number("select count(*) from postrider.delivery"), 0, "what belongs to it went with it");
}

async fn an_operator_can_neither_remove_events_nor_change_the_audit(version: Version) {
    let cast = Cast::new(version).await;
    let operator = cast.store(RoleKind::Operator).await;
    lacks_the_right(operator.event_emit(vec![Event::new("order")]).await);
    cast.scene.emit(&["a"]).await;
    cast.scene.pass(DAY * 3);
    lacks_the_right(operator.prune(DAY).await);
    let client = cast.client(RoleKind::Operator).await;
    let statements = [
        "update postrider.audit set actor = 'bob'",
        "delete from postrider.audit",
        "truncate postrider.audit",
        "delete from postrider.event",
        "truncate postrider.event_0",
        "update postrider.event set payload = '{}'",
        "delete from postrider.kept_event",
        "update postrider.subscription set name = 'other'",
        "select setval('postrider.event_id_seq', 1)",
        "select * from postrider.idempotency",
        "update postrider.position_a set last_id = 0",
    ];
    refused(&client, &statements).await;
    assert_eq!(cast.scene.events(), 1);
}

async fn a_reader_sees_all_but_payloads_and_headers(version: Version) {
    let cast = Cast::new(version).await;
    let (scene, reader) = (&cast.scene, cast.store(RoleKind::Reader).await);
    scene.subscribe("mail", Start::Oldest).await;
    let secret = Event::new("order").key("a").payload("secret").header("h", "secret");
    let ids = scene.store.event_emit(vec![secret.clone(), secret]).await.unwrap();
    scene.put("mail", &Row::dead(ids[0], "a"));
    assert_eq!((reader.payloads(), scene.store.payloads()), (Payloads::Withheld, Payloads::Shown));
    let query = EventQuery { key: Some(Key::new("a")), limit: 10, ..EventQuery::default() };
    let listed = reader.event_list(query).await.unwrap();
    assert_eq!(listed.iter().map(|event| event.id).collect::<Vec<_>>(), [ids[1], ids[0]]);
    assert!(listed.iter().all(|event| event.payload.is_empty() && event.headers.is_empty()));
    let event = reader.event_get(ids[0]).await.unwrap().unwrap();
    assert_eq!((event.topic.as_str(), event.payload.len(), event.headers.is_empty()), ("order", 0, true));
    assert_eq!(reader.event_deliveries(ids[0]).await.unwrap()[0].state, DeliveryState::Dead);
    let letters = reader.dead_letter_list(all_letters()).await.unwrap();
    assert_eq!((letters.len(), letters[0].event.payload.len()), (1, 0));
    let report = reader.subscription_report("mail").await.unwrap();
    assert_eq!((report.lag_events, report.dead), (2, 1));
    assert_eq!(reader.stats().await.unwrap().events, 2);
    assert_eq!(reader.check().await.unwrap(), Vec::<String>::new());
}

async fn a_reader_changes_nothing(version: Version) {
    let cast = Cast::new(version).await;
    let reader = cast.store(RoleKind::Reader).await;
    cast.scene.subscribe("mail", Start::Oldest).await;
    lacks_the_right(reader.event_emit(vec![Event::new("order")]).await);
    lacks_the_right(reader.subscription_create(NewSubscription::new("other")).await);
    lacks_the_right(reader.subscription_pause("mail").await);
    lacks_the_right(reader.subscription_seek("mail", Start::Now, "ann").await);
    lacks_the_right(reader.subscription_delete("mail", "ann").await);
    lacks_the_right(reader.member_join("ada").await);
    let client = cast.client(RoleKind::Reader).await;
    let statements = [
        "select payload from postrider.event",
        "select headers from postrider.event",
        "select * from postrider.event",
        "select event from postrider.event",
        "select payload from postrider.event_15",
        "select count(*) from postrider.event where payload is not null",
        "select headers from postrider.kept_event",
        "select payload_bytes from postrider.event",
        "select edited_payload from postrider.delivery",
        "select edited_payload_bytes from postrider.delivery",
        "select key from postrider.idempotency",
        "copy postrider.event to stdout",
        "select postrider.emit('a', 'b')",
        "truncate postrider.event_0",
    ];
    refused(&client, &statements).await;
}

/// An operator puts what is emitted, a relay fires it and can emit nothing else, a reader looks.
async fn each_role_has_its_part_in_schedules(version: Version) {
    let cast = Cast::new(version).await;
    let operator = cast.store(RoleKind::Operator).await;
    let secret = Event::new("order").payload("secret").header("h", "secret");
    let new = NewSchedule::new("daily", "@daily", secret);
    let put = operator.schedule_put(new.clone(), "ann").await.unwrap();
    assert!(operator.schedule_pause("daily").await.unwrap().paused_at.is_some());
    assert!(operator.schedule_resume("daily").await.unwrap().paused_at.is_none());
    assert_eq!(&operator.schedule_get("daily").await.unwrap().payload[..], b"secret");
    cast.scene.pass(DAY);
    let relay = cast.store(RoleKind::Relay).await;
    let found = relay.schedules_due().await.unwrap();
    let due = due(&found.due[0], found.now).unwrap().unwrap();
    let fire = Fire { id: put.id, seen: put.next_at, ticks: due.ticks, next_at: due.next_at };
    lacks_the_right(operator.schedule_fire(fire.clone()).await);
    assert_eq!(relay.schedule_fire(fire).await.unwrap(), Fired::Yes);
    assert_eq!(cast.scene.events(), 1);
    lacks_the_right(relay.schedule_put(new.clone().missed(Missed::All), "ann").await);
    lacks_the_right(relay.schedule_pause("daily").await);
    lacks_the_right(relay.schedule_delete("daily", "ann").await);
    refused(&cast.client(RoleKind::Relay).await, &["update postrider.schedule set topic = 'a'"]).await;
    let reader = cast.store(RoleKind::Reader).await;
    let seen = reader.schedule_get("daily").await.unwrap();
    assert_eq!(
        (seen.schedule.topic.as_str(), seen.payload.len(), seen.headers.is_empty()),
        ("order", 0, true)
    );
    assert_eq!(reader.schedule_list().await.unwrap(), [seen.schedule]);
    lacks_the_right(reader.schedule_put(new.missed(Missed::All), "ann").await);
    lacks_the_right(reader.schedule_pause("daily").await);
    let statements = [
        "select payload from postrider.schedule",
        "select headers from postrider.schedule",
        "select postrider.fire(1, now(), '{}', now())",
    ];
    refused(&cast.client(RoleKind::Reader).await, &statements).await;
    operator.schedule_delete("daily", "ann").await.unwrap();
}

/// Whatever runs with the owner's rights finds nothing in a schema that its caller could fill, and has to be granted.
async fn functions_that_run_as_the_owner_are_closed(version: Version) {
    let cast = Cast::new(version).await;
    cast.scene.run(
        "create table public.outbox (id integer, aggregatetype text, aggregateid text, type text, payload text);
         select postrider.outbox_attach('public.outbox')",
    );
    let functions = cast.scene.db.query(
        "select proname, array_to_string(proconfig, ';'), coalesce(
             (select bool_or(grantee = 0) from aclexplode(coalesce(proacl, acldefault('f', proowner)))), false)
         from pg_proc where pronamespace = 'postrider'::regnamespace and prosecdef order by proname",
    );
    let found: Vec<Vec<&str>> = functions
        .iter()
        .map(|row| row.iter().map(|value| value.as_deref().unwrap_or("")).collect())
        .collect();
    let closed = |name| vec![name, "search_path=pg_catalog, pg_temp", "f"];
    let names = [
        "ack",
        "audit_change",
        "audit_put",
        "bury",
        "event_emit",
        "fire",
        "identify",
        "leaf_keep",
        "outbox_1",
        "ring_rotate",
        "slot_note",
    ];
    assert_eq!(found, names.map(closed));
}

async fn a_role_that_may_not_create_roles_is_told_so(version: Version) {
    let cast = Cast::new(version).await;
    let more = Roles::new("postrider", &format!("{}_more", cast.scene.db.name)).unwrap();
    lacks_the_right(cast.store(RoleKind::Operator).await.roles_create(&more).await);
    assert!(cast.store(RoleKind::Operator).await.stats().await.is_ok(), "nothing else has changed");
}
