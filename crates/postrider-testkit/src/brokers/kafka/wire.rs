//! Just enough of Kafka's protocol to ask who is there: requests for metadata, version 4.

use std::io::{self, Read, Write};

use crate::brokers::exchange;

const METADATA: i16 = 3;
const VERSION: i16 = 4;
const FRAME_BYTES_MAX: usize = 1 << 20;

/// What a node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// The ids of the brokers that are alive.
    pub brokers: Vec<i32>,
    /// The code of the topic that was asked for: 0 if all is well, 3 if it does not exist.
    pub topic: Option<i16>,
    /// The leader of each of its partitions, by its number; -1 if there is none.
    pub leaders: Vec<(i32, i32)>,
}

pub(super) fn metadata(port: u16, topic: Option<&str>, create: bool) -> Result<Metadata, String> {
    let frame = exchange(port, &request(topic, create)).map_err(|error| error.to_string())?;
    parse(&mut &frame[..]).ok_or_else(|| format!("not an answer about metadata: {frame:?}"))
}

fn exchange(port: u16, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = exchange::connect(port)?;
    stream.write_all(request)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; (u32::from_be_bytes(length) as usize).min(FRAME_BYTES_MAX)];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

fn request(topic: Option<&str>, create: bool) -> Vec<u8> {
    let mut body = [METADATA.to_be_bytes(), VERSION.to_be_bytes()].concat();
    // A number that comes back, and the name of the client.
    body.extend(7_i32.to_be_bytes());
    text(&mut body, "testkit");
    body.extend(i32::from(topic.is_some()).to_be_bytes());
    if let Some(topic) = topic {
        text(&mut body, topic);
    }
    body.push(create.into());
    let length = body.len() as u32;
    [&length.to_be_bytes()[..], &body].concat()
}

fn text(body: &mut Vec<u8>, text: &str) {
    body.extend((text.len() as i16).to_be_bytes());
    body.extend(text.as_bytes());
}

/// Number that comes back, time to wait, brokers, cluster, controller, topics.
fn parse(rest: &mut &[u8]) -> Option<Metadata> {
    take(rest, 8)?;
    let mut brokers = Vec::new();
    for _ in 0..int(rest)? {
        brokers.push(int(rest)?);
        skip_text(rest)?;
        take(rest, 4)?;
        skip_text(rest)?;
    }
    skip_text(rest)?;
    take(rest, 4)?;
    let (mut topic, mut leaders) = (None, Vec::new());
    for _ in 0..int(rest)? {
        topic = Some(short(rest)?);
        skip_text(rest)?;
        take(rest, 1)?;
        for _ in 0..int(rest)? {
            take(rest, 2)?;
            leaders.push((int(rest)?, int(rest)?));
            for _replicas_then_those_in_sync in 0..2 {
                let count = int(rest)?;
                take(rest, usize::try_from(count).ok()?.checked_mul(4)?)?;
            }
        }
    }
    Some(Metadata { brokers, topic, leaders })
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn int(rest: &mut &[u8]) -> Option<i32> {
    Some(i32::from_be_bytes(take(rest, 4)?.try_into().ok()?))
}

fn short(rest: &mut &[u8]) -> Option<i16> {
    Some(i16::from_be_bytes(take(rest, 2)?.try_into().ok()?))
}

/// A length of -1 is no text at all.
fn skip_text(rest: &mut &[u8]) -> Option<()> {
    let length = short(rest)?;
    take(rest, length.max(0) as usize).map(drop)
}
