//! Large transactions, large events, odd bytes, and what a read costs the server.

use postrider_core::{ErrorKind, Event, Store, limits};
use postrider_testkit::postgres::Version;

use crate::stage::{AMPLE, Stage, emit, run};

#[tokio::test]
async fn a_transaction_of_many_rows_is_read_in_bounded_chunks() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        let (big, p) = (stage.session().await, stage.session().await);
        run(&big, "begin").await;
        let rows = "insert into postrider.event (topic, type, key, payload_bytes)
                    select 'order', 'order', 'big' || n % 100, 'x' from generate_series(1, 200000) as n";
        run(&big, rows).await;
        emit(&p, "p", "beside").await;
        assert_eq!(owner.read().await, ["beside"], "{version:?}");
        run(&big, "commit").await;
        let (mut read, mut last) = (0, 0);
        loop {
            let chunk = owner.step(AMPLE).await.unwrap();
            assert!(chunk.events.len() <= limits::CHUNK_EVENTS_MAX, "{} at once", chunk.events.len());
            read += chunk.events.len();
            for event in &chunk.events {
                assert!(event.id.0 > last, "in the order of ids");
                last = event.id.0;
            }
            if !chunk.more {
                break;
            }
        }
        assert_eq!(read, 200_000, "{version:?}");
    }
}

/// Bytes, JSON that is kept compressed, and JSON that is not: what is sent is known before in all cases.
#[tokio::test]
async fn large_payloads_are_read_in_bounded_chunks() {
    for (version, compression) in
        Version::ALL.into_iter().flat_map(|version| [(version, "extended"), (version, "external")])
    {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        for leaf in 0..16 {
            stage.run(&format!("alter table postrider.event_{leaf} alter payload set storage {compression}"));
        }
        stage.run(
            "insert into postrider.event (topic, type, key, payload, payload_bytes)
             select 'order', 'order', 'k' || n, case when n % 2 = 0 then to_json(repeat('\u{ab}', 524287)) end,
                 case when n % 2 = 1 then decode(repeat('c2ab', 524288), 'hex') end
             from generate_series(1, 100) as n",
        );
        let (mut read, mut most) = (0, 0);
        loop {
            let chunk = owner.step(AMPLE).await.unwrap();
            let bytes: usize = chunk.events.iter().map(|event| event.payload.len()).sum();
            let is_whole = |payload: &[u8]| {
                let inner =
                    payload.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(payload);
                inner.as_chunks().0.iter().all(|pair| *pair == [0xc2, 0xab])
                    && payload.len() == limits::PAYLOAD_BYTES_MAX
            };
            assert!(chunk.events.iter().all(|event| is_whole(&event.payload)));
            most = most.max(bytes);
            read += chunk.events.len();
            if !chunk.more {
                break;
            }
        }
        assert_eq!(read, 100, "{version:?}");
        assert!(most <= limits::CHUNK_BYTES_MAX + limits::PAYLOAD_BYTES_MAX, "{most} bytes at once");
    }
}

#[tokio::test]
async fn odd_bytes_come_out_as_they_went_in() {
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        let mut owner = stage.owner("orders").await;
        let seed = fastrand::u64(..);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut payloads: Vec<Vec<u8>> = vec![
            vec![],
            vec![0],
            vec![0xff, 0xfe, 0],
            (0..=255).collect(),
            b"\\x00 \\u0000 \"\xed\xa0\x80\" 1e400".to_vec(),
            format!("{}{}", "[".repeat(200), "]".repeat(200)).into_bytes(),
            b"{\"a\":1,\"a\":2}".to_vec(),
        ];
        payloads.extend((0..40).map(|_| (0..rng.usize(0..5000)).map(|_| rng.u8(..)).collect()));
        let odd = ["", "'", "\"", "\\", "%s", "\u{202e}", "\u{1f4ec}", "\u{fffd}"];
        let events: Vec<_> = payloads
            .iter()
            .zip(odd.iter().cycle())
            .map(|(payload, odd)| {
                Event::new("order").key(format!("k{odd}")).payload(payload.clone()).header("h", *odd)
            })
            .collect();
        stage.store.event_emit(events).await.unwrap();
        let chunk = owner.step(AMPLE).await.unwrap();
        assert_eq!(chunk.events.len(), payloads.len(), "seed {seed}");
        for ((event, payload), odd) in chunk.events.iter().zip(&payloads).zip(odd.iter().cycle()) {
            assert_eq!(&event.payload[..], &payload[..], "seed {seed} on {version:?}");
            assert_eq!(event.key.as_ref().unwrap().as_str(), format!("k{odd}"));
            assert_eq!(event.headers.get("h"), Some(*odd));
        }
        let refused = stage.store.event_emit(vec![Event::new("order").key("a\0b")]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
}

#[tokio::test]
async fn a_small_read_touches_few_pages() {
    let cut = format!("({})", include_str!("../../sql/server/event_cut.sql"));
    let fetch = include_str!("../../sql/log/event_fetch.sql")
        .replace("postrider.event_cut", &cut)
        .replace("postrider.event_leaf", "postrider.event_0");
    for version in Version::ALL {
        let stage = Stage::on(version).await;
        stage.run(
            "alter table postrider.event_0 set (autovacuum_enabled = off);
             insert into postrider.event (topic, type, key, payload_bytes)
             select 'order', 'order', 'k', 'x' from generate_series(1, 200000)",
        );
        // The settings of the connection that reads.
        let plan = stage.db.query(&format!(
            "set enable_seqscan = off; set enable_sort = off; set enable_bitmapscan = off; set jit = off;
             set plan_cache_mode = force_generic_plan;
             prepare read (bigint, bigint, pg_snapshot, bigint) as {fetch};
             explain (analyze, buffers, costs off, timing off) execute read (150000, 200000, '3:3:', 100)"
        ));
        let lines: Vec<String> = plan.iter().filter_map(|row| row.first()?.clone()).collect();
        let told = lines.join("\n");
        assert!(told.contains("Index Scan using event_0_pkey on event_0"), "{told}");
        let first = lines.iter().find(|line| line.contains("Buffers: shared")).unwrap();
        let pages: u32 = first.split([' ', '=']).filter_map(|word| word.parse::<u32>().ok()).take(2).sum();
        assert!(pages > 0 && pages < 50, "{pages} pages on {version:?}:\n{told}");
    }
}
