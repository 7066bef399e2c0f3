//! placeholder until the administration half is merged
use std::sync::Arc;
use postrider_core::*;
use postrider_core::store::*;
use postrider_core::subscription::SubscriptionId;
use postrider_core::log::*;
use crate::session::Tx;
use crate::statement::Sql;
use crate::store::PostgresStore;
use crate::position::*;
use bytes::Bytes;
use std::time::Duration;
pub(crate) async fn subscription_get(tx: &Tx<'_>, name: &str) -> Result<Subscription> {
    let r = tx.query_opt(Sql::new("select id from postrider.subscription where name=$1"), &[&name], "x").await?.ok_or_else(|| Error::new(ErrorKind::NotFound, "none"))?;
    let n = NewSubscription::new(name);
    Ok(Subscription { id: SubscriptionId(r.get(0)), name: name.to_owned(), filter: n.filter, mode: n.mode, order: n.order, on_dead: n.on_dead, tuning: n.tuning, created_at: Timestamp::from_micros(0), paused_at: None })
}
impl Store for PostgresStore {
    fn id(&self) -> &str { &self.inner.id }
    async fn event_emit(&self, _e: Vec<NewEvent>) -> Result<Vec<EventId>> { unimplemented!() }
    async fn event_list(&self, _q: EventQuery) -> Result<Vec<Event>> { unimplemented!() }
    async fn event_get(&self, _id: EventId) -> Result<Option<Event>> { unimplemented!() }
    async fn event_deliveries(&self, _id: EventId) -> Result<Vec<DeliveryReport>> { unimplemented!() }
    async fn subscription_create(&self, new: NewSubscription) -> Result<Subscription> {
        let mut s = self.inner.operator.session().await?;
        let tx = s.begin().await?;
        let r = tx.query_one(Sql::new("insert into postrider.subscription(name,filter,mode,order_rule,on_dead,tuning,shard_count,created_at) values ($1,'{}','log','key','skip','{}',64,postrider.clock()) returning id"), &[&new.name], "x").await?;
        let id: i64 = r.get(0);
        tx.execute(Sql::new("insert into postrider.shard(subscription_id,shard,epoch) select $1, g, 0 from generate_series(0,63) g"), &[&id], "x").await?;
        position_put(&tx, SubscriptionId(id), ShardSet(u64::MAX), &Window::at(&Arc::new(Tick::start())), EventId(0)).await?;
        tx.commit("x").await?;
        drop(s); self.subscription_get(&new.name).await
    }
    async fn subscription_get(&self, name: &str) -> Result<Subscription> {
        let mut s = self.inner.operator.session().await?;
        let tx = s.begin().await?;
        subscription_get(&tx, name).await
    }
    async fn subscription_list(&self) -> Result<Vec<SubscriptionReport>> { unimplemented!() }
    async fn subscription_report(&self, _n: &str) -> Result<SubscriptionReport> { unimplemented!() }
    async fn subscription_tune(&self, name: &str, _t: Tuning) -> Result<Subscription> { self.subscription_get(name).await }
    async fn subscription_pause(&self, _n: &str) -> Result<Subscription> { unimplemented!() }
    async fn subscription_resume(&self, _n: &str) -> Result<Subscription> { unimplemented!() }
    async fn subscription_seek(&self, _n: &str, _t: Start, _a: &str) -> Result<Position> { unimplemented!() }
    async fn subscription_delete(&self, _n: &str, _a: &str) -> Result<()> { unimplemented!() }
    async fn dead_letter_list(&self, _q: DeadLetterQuery) -> Result<Vec<DeadLetter>> { unimplemented!() }
    async fn dead_letter_get(&self, _l: &LetterId) -> Result<DeadLetter> { unimplemented!() }
    async fn dead_letter_edit(&self, _l: &LetterId, _p: Bytes, _a: &str) -> Result<()> { unimplemented!() }
    async fn dead_letter_replay(&self, _w: DeadLetterQuery, _a: &str) -> Result<u64> { unimplemented!() }
    async fn dead_letter_discard(&self, _w: DeadLetterQuery, _a: &str) -> Result<u64> { unimplemented!() }
    async fn stats(&self) -> Result<StoreReport> { unimplemented!() }
    async fn check(&self) -> Result<Vec<String>> { unimplemented!() }
    async fn prune(&self, _r: Duration) -> Result<Pruned> { Ok(Pruned::default()) }
}
