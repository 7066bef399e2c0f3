use futures_util::StreamExt;
use postrider_core::*;
use postrider_postgres::*;
use postrider_runtime::{Relay, Worker};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::time::{Duration, Instant};
#[global_allocator]
static A: mimalloc::MiMalloc = mimalloc::MiMalloc;
const SECS: usize = 5;
const N: usize = 1000 * SECS;
struct Stamps {
    epoch: Instant,
    sent: Vec<AtomicU64>,
    got: Vec<AtomicU64>,
}
impl Stamps {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            epoch: Instant::now(),
            sent: (0..N).map(|_| AtomicU64::new(0)).collect(),
            got: (0..N).map(|_| AtomicU64::new(0)).collect(),
        })
    }
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
    fn report(&self, what: &str) {
        let mut l: Vec<u64> = (0..N)
            .filter(|i| self.got[*i].load(Relaxed) > 0)
            .map(|i| self.got[i].load(Relaxed) - self.sent[i].load(Relaxed))
            .collect();
        l.sort();
        let p = |q: usize| l[l.len() * q / 1000] as f64 / 1e6;
        println!(
            "{what}: n {} p50 {:.2} p90 {:.2} p99 {:.2} max {:.2} ms",
            l.len(),
            p(500),
            p(900),
            p(990),
            p(999)
        );
    }
}
async fn connect(url: &str) -> tokio_postgres::Client {
    let (c, conn) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(conn);
    c
}
async fn produce(url: &str, conns: usize, notify: bool, st: &Arc<Stamps>, base: i64) {
    let mut hs = vec![];
    for k in 0..conns {
        let (url, st) = (url.to_owned(), st.clone());
        hs.push(tokio::spawn(async move {
            let c = connect(&url).await;
            let sql = if notify {
                "insert into bare(topic,type,key,payload) values ('order','order.created',$1,$2)"
            } else {
                "insert into postrider.event(topic,type,key,payload) values ('order','order.created',$1,$2)"
            };
            let ins = c.prepare(sql).await.unwrap();
            let begin = Instant::now();
            for (j, n) in (k..N).step_by(conns).enumerate() {
                let due = Duration::from_micros((j * conns * 1000 + k * 1000) as u64);
                if let Some(w) = due.checked_sub(begin.elapsed()) {
                    tokio::time::sleep(w).await;
                }
                c.batch_execute("begin").await.unwrap();
                let mut p = vec![b'x'; 100];
                p[..8].copy_from_slice(&((base as u64) << 32 | n as u64).to_le_bytes());
                c.execute(&ins, &[&format!("k{}", n % 1000), &p]).await.unwrap();
                if notify {
                    c.batch_execute(&format!("notify ch, '{n}'")).await.unwrap();
                }
                st.sent[n].store(st.now(), Relaxed);
                c.batch_execute("commit").await.unwrap();
            }
        }));
    }
    for h in hs {
        h.await.unwrap();
    }
}
#[tokio::main]
async fn main() {
    let url = std::env::var("PGURL").unwrap();
    let conns: usize = std::env::args().nth(1).map_or(4, |x| x.parse().unwrap());
    let trust = std::env::args().nth(2).as_deref() == Some("trust");
    let o = PostgresOptions::from_url(&url).unwrap().durability(if trust {
        Durability::Trust
    } else {
        Durability::Flush
    });
    let store = PostgresStore::open(o).await.unwrap();
    let c = connect(&url).await;
    c.batch_execute("create table if not exists bare (id bigint generated always as identity primary key, created_at timestamptz not null default clock_timestamp(), due_at timestamptz, topic text not null, type text not null, key text, headers json, payload bytea not null)").await.unwrap();
    let name = format!(
        "s{}",
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros()
    );
    c.batch_execute("truncate postrider.event").await.unwrap();
    store.subscription_create(NewSubscription::new(&name)).await.unwrap();
    let cur = Arc::new(std::sync::Mutex::new((0u64, Stamps::new())));
    let seen = cur.clone();
    tokio::spawn(
        Relay::new(store.clone())
            .name("x")
            .worker(Worker::new(NewSubscription::new(&name)).each(move |e: Delivery| {
                let g = seen.lock().unwrap();
                let v = u64::from_le_bytes(e.payload[..8].try_into().unwrap());
                if v >> 32 == g.0 {
                    let n = (v & 0xffff_ffff) as usize;
                    g.1.got[n].store(g.1.now(), Relaxed);
                }
                std::future::ready(Ok::<(), Failure>(()))
            }))
            .run(std::future::pending()),
    );
    for round in 1..=2i64 {
        // listener
        let st = Stamps::new();
        let (lc, mut lconn) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        let st2 = st.clone();
        let l = tokio::spawn(async move {
            let mut s = futures_util::stream::poll_fn(move |cx| lconn.poll_message(cx));
            while let Some(Ok(m)) = s.next().await {
                if let tokio_postgres::AsyncMessage::Notification(n) = m {
                    st2.got[n.payload().parse::<usize>().unwrap()].store(st2.now(), Relaxed);
                }
            }
        });
        lc.batch_execute("listen ch").await.unwrap();
        produce(&url, conns, true, &st, 0).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        st.report("notify");
        drop(lc);
        l.abort();
        let st = Stamps::new();
        *cur.lock().unwrap() = (round as u64, st.clone());
        produce(&url, conns, false, &st, round).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        st.report("ours  ");
        let st = Stamps::new();
        *cur.lock().unwrap() = (round as u64 + 100, st.clone());
        let w = connect(&url).await;
        w.batch_execute(
            "begin; insert into postrider.event(topic,type,key,payload) values ('a','b','c','xxxxxxxxxxxxx')",
        )
        .await
        .unwrap();
        produce(&url, conns, false, &st, round + 100).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        st.report("ours with open writer");
    }
}
