// Every case with every library for Go: as a text, and as a value that the library writes as JSON.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"log"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"gorm.io/datatypes"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

const insert = "insert into postrider.event (topic, type, key, payload) values ($1, 'made', $2, $3)"
const emit = "select postrider.emit($1, 'made', $2, $3)"

func withPgx(url string, cases []string) {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, url)
	must(err)
	defer db.Close(ctx)
	for n, text := range cases {
		key := strconv.Itoa(n)
		run := func(sql string, arguments ...any) {
			_, err := db.Exec(ctx, sql, arguments...)
			must(err)
		}
		run(insert, "pgx.insert", key, text)
		run(insert, "pgx.insert-value", key, json.RawMessage(text))
		run(emit, "pgx.emit", key, text)
		run("select postrider.emit($1, 'made', $2::bigint, $3)", "pgx.emit", n+len(cases), text)
	}
}

func withSql(library, driver, url string, cases []string) {
	db, err := sql.Open(driver, url)
	must(err)
	defer db.Close()
	for n, text := range cases {
		run := func(sql string, arguments ...any) {
			_, err := db.Exec(sql, arguments...)
			must(err)
		}
		run(insert, library+".insert", strconv.Itoa(n), text)
		run(insert, library+".insert", strconv.Itoa(n+len(cases)), []byte(text))
		run(emit, library+".emit", strconv.Itoa(n), text)
	}
}

type event struct {
	Topic   string
	Type    *string
	Key     string
	Payload string
	// What is nil is written as JSON's null.
	Headers datatypes.JSONMap
}

type valueEvent struct {
	Topic   string
	Key     string
	Payload datatypes.JSON
}

func (event) TableName() string      { return "postrider.event" }
func (valueEvent) TableName() string { return "postrider.event" }

func withGorm(url string, cases []string) {
	db, err := gorm.Open(postgres.Open(url))
	must(err)
	for n, text := range cases {
		key := strconv.Itoa(n)
		must(db.Create(&event{Topic: "gorm.insert", Key: key, Payload: text}).Error)
		must(db.Create(&valueEvent{Topic: "gorm.insert-value", Key: key, Payload: datatypes.JSON(text)}).Error)
		must(db.Exec("select postrider.emit('gorm.emit', 'made', ?, ?)", key, text).Error)
	}
}

func main() {
	file, err := os.ReadFile("../cases.json")
	must(err)
	var cases []string
	must(json.Unmarshal(file, &cases))
	url := os.Getenv("DATABASE_URL")
	withPgx(url, cases)
	withSql("lib-pq", "postgres", url, cases)
	withSql("pgx-stdlib", "pgx", url, cases)
	withGorm(url, cases)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
