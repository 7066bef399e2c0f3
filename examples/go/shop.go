// Orders and their events, each pair in one transaction: with database/sql and plain SQL, nothing else.
package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"os"

	_ "github.com/lib/pq"
)

type placed struct {
	Order string `json:"order"`
	Total int    `json:"total"`
	Note  string `json:"note"`
}

// placeOrder makes an order and its event: they are there together, or neither is.
func placeOrder(db *sql.DB, order string, total int) error {
	payload, err := json.Marshal(placed{order, total, "für Zoë ☕"})
	if err != nil {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	// After a commit this does nothing.
	defer tx.Rollback()
	if _, err := tx.Exec("insert into orders (id, total) values ($1, $2)", order, total); err != nil {
		return err
	}
	_, err = tx.Exec(
		`insert into postrider.event (topic, type, key, payload, headers)
		 values ('order', 'order.placed', $1, $2, $3)`,
		order, payload, `{"shop":"go"}`)
	if err != nil {
		return err
	}
	if total <= 0 {
		return fmt.Errorf("refused %s", order)
	}
	return tx.Commit()
}

// sendReceipt may be repeated: the event is emitted once for its idempotency key, and its id is returned each time.
func sendReceipt(db *sql.DB, order string, receipt []byte) (id int64, err error) {
	err = db.QueryRow(
		"select postrider.emit_bytes('order', 'order.receipt', $1, $2, idempotency_key => $3)",
		order, receipt, "receipt-"+order).Scan(&id)
	return id, err
}

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	must(err)
	defer db.Close()
	_, err = db.Exec("create table if not exists orders (id text primary key, total int not null)")
	must(err)
	must(placeOrder(db, "go-1", 1999))
	if err := placeOrder(db, "go-2", 0); err != nil {
		fmt.Println(err)
	}
	receipt := make([]byte, 256)
	for i := range receipt {
		receipt[i] = byte(i)
	}
	first, err := sendReceipt(db, "go-1", receipt)
	must(err)
	again, err := sendReceipt(db, "go-1", receipt)
	must(err)
	if first != again {
		log.Fatalf("emitted twice: %d and %d", first, again)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
