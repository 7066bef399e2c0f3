// Orders and their events, each pair in one transaction: with node-postgres and plain SQL, nothing else.

import assert from 'node:assert/strict'
import pg from 'pg'

/** The order and its event are there together, or neither is. */
async function placeOrder(db, order, total) {
  const payload = { order, total, note: 'für Zoë ☕' }
  await db.query('begin')
  try {
    await db.query('insert into orders (id, total) values ($1, $2)', [order, total])
    await db.query(
      `insert into postrider.event (topic, type, key, payload, headers)
       values ('order', 'order.placed', $1, $2, $3)`,
      [order, payload, { shop: 'node' }],
    )
    if (total <= 0) throw new Error(`refused ${order}`)
    await db.query('commit')
  } catch (error) {
    await db.query('rollback')
    throw error
  }
}

/** May be repeated: the event is emitted once for its idempotency key, and its id is returned each time. */
async function sendReceipt(db, order, receipt) {
  const emitted = await db.query(
    `select postrider.emit_bytes('order', 'order.receipt', $1, $2, idempotency_key => $3) as id`,
    [order, receipt, `receipt-${order}`],
  )
  return emitted.rows[0].id
}

// A client and no pool: a transaction lives on one connection.
const db = new pg.Client({ connectionString: process.env.DATABASE_URL })
await db.connect()
await db.query('create table if not exists orders (id text primary key, total int not null)')
await placeOrder(db, 'node-1', 1999)
await placeOrder(db, 'node-2', 0).catch((error) => console.log(error.message))
const receipt = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte))
assert.equal(await sendReceipt(db, 'node-1', receipt), await sendReceipt(db, 'node-1', receipt))
await db.end()
