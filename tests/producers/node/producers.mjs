// Every case with every library for Node: as a text, and as a value that the library writes as JSON.

import { readFileSync } from 'node:fs'
import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import { jsonb, pgSchema, text } from 'drizzle-orm/pg-core'
import knex from 'knex'
import pg from 'pg'
import { DataSource, EntitySchema } from 'typeorm'

const cases = JSON.parse(readFileSync(new URL('../cases.json', import.meta.url)))
const url = process.env.DATABASE_URL
const insert = 'insert into postrider.event (topic, type, key, payload) values'
// Numbers of JavaScript have 53 bits.
const fits = (json) => !json.includes('"number"')

async function withNodePostgres() {
  const db = new pg.Client({ connectionString: url })
  await db.connect()
  for (const [key, json] of cases.entries()) {
    await db.query(`${insert} ('node-postgres.insert', 'made', $1, $2)`, [key, json])
    await db.query(`select postrider.emit('node-postgres.emit', 'made', $1, $2)`, [key, json])
    if (fits(json)) {
      await db.query(`${insert} ('node-postgres.insert-value', 'made', $1, $2)`, [key, JSON.parse(json)])
      await db.query(`select postrider.emit('node-postgres.emit-value', 'made', $1, $2)`, [key, JSON.parse(json)])
    }
  }
  await db.end()
}

async function withKnex() {
  const db = knex({ client: 'pg', connection: url })
  for (const [key, json] of cases.entries()) {
    const event = { topic: 'knex.insert', type: 'made', key, payload: json }
    await db.withSchema('postrider').insert(event).into('event').returning('id')
    await db.raw(`select postrider.emit('knex.emit', 'made', ?, ?)`, [key, json])
    if (fits(json)) {
      const value = { topic: 'knex.insert-value', key, payload: JSON.parse(json) }
      await db.withSchema('postrider').insert(value).into('event')
    }
  }
  await db.destroy()
}

async function withDrizzle() {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const db = drizzle(client)
  const columns = { topic: text(), type: text(), key: text(), payload: jsonb() }
  const event = pgSchema('postrider').table('event', columns)
  for (const [key, json] of cases.entries()) {
    await db.execute(sql`select postrider.emit('drizzle.emit', 'made', ${key}, ${json})`)
    if (fits(json)) {
      await db.insert(event).values({ topic: 'drizzle.insert-value', key: `${key}`, payload: JSON.parse(json) })
    }
  }
  await client.end()
}

async function withTypeOrm() {
  const Event = new EntitySchema({
    name: 'event',
    schema: 'postrider',
    columns: {
      id: { type: 'bigint', primary: true, insert: false, update: false },
      topic: { type: 'text' },
      type: { type: 'text', nullable: true },
      key: { type: 'text', nullable: true },
      payload: { type: 'json', nullable: true },
    },
  })
  const db = await new DataSource({ type: 'postgres', url, entities: [Event] }).initialize()
  for (const [key, json] of cases.entries()) {
    await db.query(`select postrider.emit('typeorm.emit', 'made', $1, $2)`, [key, json])
    if (fits(json)) {
      await db.getRepository('event').insert({ topic: 'typeorm.insert-value', key, payload: JSON.parse(json) })
    }
  }
  await db.destroy()
}

await withNodePostgres()
await withKnex()
await withDrizzle()
await withTypeOrm()
