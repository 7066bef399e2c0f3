//! An order service with an outbox: creates and confirms orders, and a worker that writes to customers.
//!
//! ```text
//! cargo run -p orders
//! ```
//!
//! The mail server of this example fails now and then. Nothing is lost, and each customer hears about the
//! creation of an order before its confirmation.

mod service;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use postrider::sqlite::{SqliteOptions, SqliteStore, rusqlite};
use postrider::{Delivery, Failure, NewSubscription, Relay, RetryPolicy, Worker};

use service::{OrderConfirmed, OrderCreated, OrderService};

const ORDERS: u32 = 5;

#[tokio::main]
async fn main() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("shop.db");
    let store = SqliteStore::open(SqliteOptions::new(&path)).await?;
    let mail = Arc::new(MailServer::default());

    let (all_sent, wait_for_all) = tokio::sync::oneshot::channel();
    let relay = tokio::spawn(run_worker(store, Arc::clone(&mail), wait_for_all));

    let mut orders = OrderService::new(rusqlite::Connection::open(&path)?)?;
    for number in 1..=ORDERS {
        let order_id = format!("ORD-{number}");
        let customer_id = format!("CUST-{number}");
        orders.create(&OrderCreated { order_id: order_id.clone(), customer_id, total_cents: 9999 })?;
        orders.confirm(&order_id)?;
        println!("created and confirmed {order_id}");
    }
    // A second confirmation fails, and with it the event: the customer gets no second mail.
    println!("confirming twice: {}", orders.confirm("ORD-1").expect_err("it is confirmed"));

    mail.wait_for(ORDERS * 2).await;
    let _ = all_sent.send(());
    let summary = relay.await??;
    println!("{} events delivered, {} attempts failed on the way", summary.delivered, summary.failed);
    mail.check();
    Ok(())
}

async fn run_worker(
    store: SqliteStore,
    mail: Arc<MailServer>,
    stop: tokio::sync::oneshot::Receiver<()>,
) -> postrider::Result<postrider::Summary> {
    let subscription = NewSubscription::new("confirmations")
        .topic("order")?
        .retry(RetryPolicy::exponential(Duration::from_millis(20), Duration::from_secs(1)));
    let worker = Worker::new(subscription).each(move |delivery: Delivery| {
        let mail = Arc::clone(&mail);
        async move { mail.send(text_for(&delivery)?) }
    });
    Relay::new(store).name("orders").worker(worker).run(async { stop.await.unwrap_or_default() }).await
}

fn text_for(delivery: &Delivery) -> Result<String, Failure> {
    // An event that cannot be read will not become readable: it is a dead letter at once.
    let unreadable = |error: postrider::Error| Failure::permanent(error.to_string());
    match delivery.kind.as_str() {
        "order.created" => {
            let order: OrderCreated = delivery.json().map_err(unreadable)?;
            Ok(format!("{}: thank you, {}", order.order_id, order.customer_id))
        }
        "order.confirmed" => {
            let order: OrderConfirmed = delivery.json().map_err(unreadable)?;
            Ok(format!("{}: confirmed", order.order_id))
        }
        other => Err(Failure::permanent(format!("no mail for {other}"))),
    }
}

/// Accepts every third mail at the second try only.
#[derive(Default)]
struct MailServer {
    tries: AtomicU32,
    sent: Mutex<Vec<String>>,
    changed: tokio::sync::Notify,
}

impl MailServer {
    fn send(&self, text: String) -> Result<(), Failure> {
        if self.tries.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            return Err(Failure::retry("mail server busy"));
        }
        println!("mail: {text}");
        self.sent.lock().expect("no panics").push(text);
        self.changed.notify_one();
        Ok(())
    }

    async fn wait_for(&self, count: u32) {
        while self.sent.lock().expect("no panics").len() < count as usize {
            self.changed.notified().await;
        }
    }

    /// Each order was confirmed after it was created, once.
    fn check(&self) {
        let sent = self.sent.lock().expect("no panics");
        for number in 1..=ORDERS {
            let mails: Vec<_> =
                sent.iter().filter(|text| text.starts_with(&format!("ORD-{number}:"))).collect();
            assert_eq!(mails.len(), 2, "{mails:?}");
            assert!(mails[0].contains("thank you") && mails[1].contains("confirmed"), "{mails:?}");
        }
    }
}
