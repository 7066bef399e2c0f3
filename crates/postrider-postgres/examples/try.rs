use futures_util::TryStreamExt;
use postrider_core::*;
use postrider_postgres::*;
use postrider_runtime::{Relay, Worker};
use std::time::Instant;
#[global_allocator]
static A: mimalloc::MiMalloc = mimalloc::MiMalloc;
#[tokio::main]
async fn main() {
    let url = std::env::var("PGURL").unwrap();
    let n: i64 = std::env::args().nth(1).map_or(1_000_000, |x| x.parse().unwrap());
    let store = PostgresStore::open(PostgresOptions::from_url(&url).unwrap()).await.unwrap();
    let (client, conn) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(conn);
    let have: i64 = client.query_one("select count(*) from postrider.event", &[]).await.unwrap().get(0);
    if have < n {
        client.execute("insert into postrider.event(topic,type,key,payload) select 'order','order.created','k'||(g%1000), convert_to(repeat('x',100),'utf8') from generate_series(1,$1::bigint) g", &[&(n - have)]).await.unwrap();
        client.batch_execute("vacuum analyze postrider.event_0").await.unwrap();
    }
    for round in 0..3 {
        // bare
        let t = Instant::now();
        let st = client.prepare("select id,topic,type,key,payload,headers,created_at,due_at from postrider.event_0 where id > $1 order by id limit 4000").await.unwrap();
        let (mut last, mut count) = (0i64, 0u64);
        loop {
            let mut got = 0;
            let rows = client.query_raw(&st, [last]).await.unwrap();
            let mut rows = std::pin::pin!(rows);
            while let Some(row) = rows.try_next().await.unwrap() {
                last = row.get(0);
                let topic: &str = row.get(1);
                let kind: &str = row.get(2);
                let key: Option<&str> = row.get(3);
                let payload: &[u8] = row.get(4);
                std::hint::black_box((
                    Topic::new(topic),
                    Kind::new(kind),
                    key.map(Key::new),
                    payload.to_vec(),
                ));
                got += 1;
                count += 1;
            }
            if got < 4000 {
                break;
            }
        }
        let bare = count as f64 / t.elapsed().as_secs_f64();
        let name = format!(
            "s{}",
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros()
        );
        store.subscription_create(NewSubscription::new(&name)).await.unwrap();
        let t = Instant::now();
        let done = Relay::new(store.clone())
            .name("x")
            .worker(
                Worker::new(NewSubscription::new(&name)).each(|_e: Delivery| async { Ok::<(), Failure>(()) }),
            )
            .run_until_idle(std::future::pending())
            .await
            .unwrap();
        let ours = done.delivered as f64 / t.elapsed().as_secs_f64();
        let rss = std::fs::read_to_string("/proc/self/status")
            .unwrap()
            .lines()
            .find(|l| l.starts_with("VmHWM"))
            .unwrap()
            .to_owned();
        println!(
            "round {round}: bare {bare:.0}/s ours {ours:.0}/s ratio {:.2} ({} delivered) {rss}",
            ours / bare,
            done.delivered
        );
    }
}
