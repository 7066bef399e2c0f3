//! Draws which member of a group holds which shards.

use postrider_core::Position;
use postrider_core::settle::MemberId;
use postrider_core::store::{MemberReport, ShardReport};

use crate::output::{Cell, Column, Page, Role};

/// A shard that is meant, and one that is not.
const HELD: char = '■';
const OTHER: char = '·';

/// One line a member, and one for the shards that no member holds.
pub(crate) fn shard_map(page: &Page, members: &[MemberReport], shards: &[ShardReport]) -> String {
    let columns =
        [Column::left("MEMBER"), Column::right("HOLDS"), Column::right("POSITION"), Column::left("SHARDS")];
    let mut table = page.table(columns);
    for member in members {
        let (text, role) = title(member, members);
        let title = Cell::new(text).role(role);
        table.row(line(title, Some(member.id), shards));
    }
    if shards.iter().any(|shard| shard.member.is_none()) {
        table.row(line(Cell::new("nobody").role(Role::Waits), None, shards));
    }
    table.finish()
}

/// Members of one name are told apart by their numbers.
fn title(member: &MemberReport, members: &[MemberReport]) -> (String, Role) {
    let namesakes = members.iter().filter(|other| other.name == member.name).count();
    let number = if namesakes > 1 { format!(" ({})", member.id.0) } else { String::new() };
    if member.lives {
        (format!("{}{number}", member.name), Role::Good)
    } else {
        (format!("{}{number}, silent", member.name), Role::Bad)
    }
}

fn line(title: Cell, member: Option<MemberId>, shards: &[ShardReport]) -> [Cell; 4] {
    let held = || shards.iter().filter(|shard| shard.member == member);
    let positions = || held().map(|shard| shard.position);
    let map = shards.iter().map(|shard| if shard.member == member { HELD } else { OTHER });
    [
        title,
        Cell::count(held().count() as u64),
        Cell::new(range(positions().min(), positions().max())),
        Cell::new(map.collect::<String>()),
    ]
}

fn range(least: Option<Position>, most: Option<Position>) -> String {
    match (least, most) {
        (Some(least), Some(most)) if least == most => least.to_string(),
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::{Epoch, EventId, Shard};

    use super::*;

    fn member(id: i64, name: &str, lives: bool) -> MemberReport {
        MemberReport { id: MemberId(id), name: name.to_owned(), lives }
    }

    fn shards(owners: &[i64]) -> Vec<ShardReport> {
        let of = |(index, owner): (usize, &i64)| ShardReport {
            shard: Shard(index as u16),
            position: Position::START.at(EventId(10 + index as i64 / 2)),
            epoch: Epoch(1),
            member: (*owner > 0).then_some(MemberId(*owner)),
        };
        owners.iter().enumerate().map(of).collect()
    }

    #[test]
    fn every_shard_is_drawn_with_its_holder() {
        let members = [member(1, "a", true), member(2, "b", false), member(3, "a", true)];
        let expected = "\
MEMBER     HOLDS  POSITION  SHARDS
a (1)          2        10  ■■····
b, silent      2  11 to 12  ···■■·
a (3)          0            ······
nobody         2  11 to 12  ··■··■
";
        let page = Page::plain("2026-11-15T08:30:00Z".parse().unwrap());
        assert_eq!(shard_map(&page, &members, &shards(&[1, 1, 0, 2, 2, 0])), expected);
    }
}
