use serde_json::{Value, json};

use crate::harness::{Place, snapshot};

const TWO: &str = r#"
[sinks.orders]
type = "file"
path = "orders.jsonl"

[sinks.all]
url = "file:all.jsonl"

[subscriptions.orders]
sink = "orders"
topics = ["order"]
concurrency = 4

[subscriptions.everything]
sink = "all"
"#;

const RELAY: [&str; 3] = ["relay", "--config", "p.toml"];

fn with(more: &[&'static str]) -> Vec<&'static str> {
    RELAY.iter().chain(more).copied().collect()
}

#[test]
fn mistakes_are_told_all_at_once_with_their_places_and_nothing_is_made() {
    let place = Place::new();
    place.write(
        "p.toml",
        "retention = 7\n[sinks.out]\ntype = 'file'\npth = 'x'\n[subscriptions.a]\nsink = 'ou'\n",
    );
    let before = snapshot(place.dir());
    for args in [with(&[]), with(&["--check"]), with(&["--once"])] {
        let ran = place.run(&args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{ran:?}");
        let places: Vec<&str> = ran.stderr.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
        assert_eq!(places, ["p.toml:1:13", "p.toml:2:1", "p.toml:4:1", "p.toml:6:8"], "{ran:?}");
        assert!(ran.stderr.contains("unknown key `pth`; did you mean `path`?"), "{ran:?}");
        assert!(ran.stderr.contains("there is no sink `ou`; did you mean `out`?"), "{ran:?}");
    }
    let ran = place.run(&with(&["--json"]));
    let told: Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(told["error"]["exit_code"], 2);
    assert_eq!(told["error"]["problems"].as_array().unwrap().len(), 4);
    let expected = json!({"file": "p.toml", "line": 4, "column": 1, "message": "unknown key `pth`", "hint": "did you mean `path`?"});
    assert_eq!(told["error"]["problems"][2], expected);
    assert!(snapshot(place.dir()) == before, "something was written");
    let ran = place.run(&["relay", "--config", "nowhere.toml"]);
    assert!(ran.code == 3 && ran.stderr.contains("`nowhere.toml`"), "{ran:?}");
}

#[test]
fn once_delivers_all_subscriptions_and_ends() {
    let place = Place::new();
    place.write("p.toml", TWO);
    place.ok(&["emit", "order", "--count", "30"]);
    place.ok(&["emit", "invoice", "--count", "12"]);
    let done = json!({"delivered": 72, "failed": 0, "dead": 0, "cut_off": 0});
    assert_eq!(place.json(&with(&["--once"])), done);
    assert_eq!(place.delivered("orders.jsonl").len(), 30);
    assert_eq!(place.delivered("all.jsonl").len(), 42);
    assert_eq!(place.ok(&with(&["--once"])), "delivered 0 events\n");
    assert_eq!(place.json(&["subscription", "show", "orders"])["tuning"]["concurrency"], 4);
}

#[test]
fn variables_come_over_the_file() {
    let place = Place::new();
    place.write("p.toml", TWO);
    place.ok(&["emit", "order"]);
    let mut command = place.command(&with(&["--once"]));
    command.env("POSTRIDER_SINKS__ORDERS__PATH", "elsewhere.jsonl");
    command.env("POSTRIDER_SUBSCRIPTIONS__ORDERS__CONCURRENCY", "7");
    command.env("POSTRIDER_LOG_FORMAT", "json");
    command.env("POSTRIDER_PORT", "tcp://10.0.0.1:80");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for line in String::from_utf8(output.stderr).unwrap().lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    assert_eq!(place.delivered("elsewhere.jsonl").len(), 1);
    assert!(!place.path("orders.jsonl").exists());
    assert_eq!(place.json(&["subscription", "show", "orders"])["tuning"]["concurrency"], 7);
    let wrong = place.command(&with(&[])).env("POSTRIDER_SINKS__ORDERS__PTH", "x").output().unwrap();
    let told = String::from_utf8(wrong.stderr).unwrap();
    assert!(told.starts_with("error: POSTRIDER_SINKS__ORDERS__PTH: unknown key"), "{told}");
}

#[test]
fn a_check_tells_what_would_change_and_changes_nothing() {
    let place = Place::new();
    place.write("p.toml", TWO);
    let before = snapshot(place.dir());
    let report = place.json(&with(&["--check"]));
    assert_eq!(report["stores"], json!([{"store": "sqlite://p.db", "found": false}]));
    assert_eq!(report["subscriptions"][0]["change"], "create");
    assert_eq!(report["sinks"][1]["findings"], json!(["would create the file `orders.jsonl`"]));
    assert!(snapshot(place.dir()) == before, "something was written");
    place.ok(&["emit", "order"]);
    place.ok(&with(&["--once"]));
    let told = place.ok(&with(&["--check"]));
    assert!(told.contains("store sqlite://p.db: answers\n"), "{told}");
    assert!(told.contains("subscription orders: stays as it is"), "{told}");
    place.write("p.toml", TWO.replace("concurrency = 4", "concurrency = 5\nretry = \"fixed:5s\""));
    let told = place.ok(&with(&["--check"]));
    assert!(told.contains("concurrency 4 → 5") && told.contains("would be tuned: retry "), "{told}");
    assert_eq!(place.json(&["subscription", "show", "orders"])["tuning"]["concurrency"], 4);
}

#[test]
fn a_check_finds_what_would_not_work() {
    let place = Place::new();
    place.write("p.toml", TWO);
    place.ok(&with(&["--once"]));
    let bad =
        TWO.replace("topics = [\"order\"]", "topics = [\"other\"]").replace("all.jsonl", "no/all.jsonl");
    place.write("p.toml", bad);
    let ran = place.run(&with(&["--check"]));
    assert_eq!(ran.code, 10, "{ran:?}");
    assert!(
        ran.stdout.contains("subscription orders: PROBLEM: subscription `orders` exists with filter"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("sink all: PROBLEM: "), "{ran:?}");
    assert!(ran.stdout.contains("subscription everything: stays as it is"), "{ran:?}");
    // And what would not work does not begin.
    let ran = place.run(&with(&["--once"]));
    assert!(ran.code != 0, "{ran:?}");
    // The same plan is made of what is typed.
    let typed = ["relay", "--subscription", "orders", "--topic", "other", "--sink", "null", "--check"];
    assert_eq!(place.run(&typed).code, 10);
    assert_eq!(place.run(&["relay", "--subscription", "orders", "--sink", "null", "--check"]).code, 0);
}

#[test]
fn secrets_are_never_shown() {
    let place = Place::new();
    place.write("url", "postgres://ada:hunter2@127.0.0.1:1/shop\n");
    let config =
        |store: &str| format!("store = '{store}'\n[sinks.n]\nurl = 'null'\n[subscriptions.a]\nsink = 'n'\n");
    for store in ["postgres://ada:hunter2@127.0.0.1:1/shop", "env:SHOP_URL", "file:url"] {
        place.write("p.toml", config(store));
        for args in [with(&["--check"]), with(&["--check", "--json"]), with(&["--once", "-vvv"])] {
            let output = place
                .command(&args)
                .env_remove("POSTRIDER_STORE")
                .env("SHOP_URL", "postgres://ada:hunter2@127.0.0.1:1/shop")
                .output()
                .unwrap();
            let code = output.status.code().unwrap();
            let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert_eq!(code, if args.contains(&"--check") { 10 } else { 5 }, "{told}");
            assert!(told.contains("postgres://127.0.0.1:1/shop") || code == 5, "{told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
    place.write("p.toml", config("mysql://ada:hunter2@h/db"));
    let output = place.command(&with(&[])).env_remove("POSTRIDER_STORE").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("p.toml:1:9: ") && !told.contains("hunter2"), "{told}");
}

#[test]
fn one_process_serves_several_stores() {
    let place = Place::new();
    let config = "[stores.a]\nurl = 'sqlite://a.db'\n[stores.b]\nurl = 'sqlite://b.db'\n\
                  [sinks.one]\nurl = 'file:out.jsonl'\n\
                  [subscriptions.from-a]\nstore = 'a'\nsink = 'one'\n[subscriptions.from-b]\nstore = 'b'\nsink = 'one'\n";
    place.write("p.toml", config);
    place.ok(&["emit", "order", "--count", "700", "--store", "sqlite://a.db"]);
    place.ok(&["emit", "order", "--count", "500", "--store", "sqlite://b.db"]);
    let output = place.command(&with(&["--once"])).env_remove("POSTRIDER_STORE").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let delivered = place.delivered("out.jsonl");
    let of = |name: &str| delivered.iter().filter(|line| line["subscription"] == name).count();
    assert_eq!((of("from-a"), of("from-b"), delivered.len()), (700, 500, 1200));
    assert!(!place.database().exists(), "only the stores that are named are made");
}

#[test]
fn the_schema_is_printed() {
    let place = Place::new();
    let schema: Value = serde_json::from_str(&place.ok(&["relay", "--schema"])).unwrap();
    assert_eq!(schema["title"], "postrider.toml");
    assert!(schema["properties"]["subscriptions"].is_object(), "{schema}");
}

#[test]
fn with_a_json_log_mistakes_are_lines_of_it() {
    let place = Place::new();
    place.write("p.toml", "log_format = 'json'\nretention = 'often'\n[sinks.out]\ntype = 'webhook'\n");
    let ran = place.run(&["relay", "--config", "p.toml"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let lines: Vec<serde_json::Value> =
        ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 1, "{ran:?}");
    for line in &lines {
        assert_eq!(
            (&line["level"], &line["exit_code"], &line["file"]),
            (&"ERROR".into(), &2.into(), &"p.toml".into())
        );
    }
    assert!(ran.stderr.contains("there is no type of sink `webhook`; did you mean `http`?"), "{ran:?}");
    // A process reports the error that ends it in the form of its log, also if an option asks for that form.
    let absent = place.run(&["relay", "--config", "none.toml", "--log-format", "json"]);
    let line: serde_json::Value = serde_json::from_str(absent.stderr.trim()).unwrap();
    assert_eq!((absent.code, &line["exit_code"], &line["kind"]), (3, &3.into(), &"not_found".into()));
}
