//! Scopes, by numbers: a task keeps four bytes of its own.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use super::log::Listed;
use super::order::Order;
use crate::model::{Scope, Timestamp};
use crate::store::Tally;

/// A task's place in an order: by time, and then by its number, which only tells tasks of one time apart.
///
/// Every task has two, so the time is in halves, which go together with the number in twelve bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    time: [u32; 2],
    pub(super) number: u32,
}

impl Place {
    pub(super) fn new(time: Timestamp, number: u32) -> Self {
        // So that what is before 1970 comes first.
        let time = (time.as_millis() ^ i64::MIN).cast_unsigned();
        Self {
            time: [(time >> 32) as u32, time as u32],
            number,
        }
    }

    pub(super) fn time(self) -> Timestamp {
        Timestamp::from_millis(self.whole().cast_signed() ^ i64::MIN).unwrap_or_default()
    }

    fn whole(self) -> u64 {
        let [high, low] = self.time.map(u64::from);
        high << 32 | low
    }
}

impl Ord for Place {
    /// In two steps instead of three: every task is compared with many.
    fn cmp(&self, other: &Self) -> Ordering {
        self.whole()
            .cmp(&other.whole())
            .then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The scopes that have tasks, and their tasks by the time of their status.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    numbers: HashMap<Scope, u32>,
    rooms: Vec<Option<Room>>,
    free: Vec<u32>,
    houses: Vec<House>,
    /// The one that was entered last: most often it is the next one too.
    last: u32,
}

#[derive(Debug)]
struct Room {
    scope: Scope,
    house: usize,
    places: Order,
}

/// An agent within a tenant, whoever its callers are. There are as many as are configured, so they stay.
#[derive(Debug)]
struct House {
    agent: Arc<str>,
    tenant: Arc<str>,
    tally: Tally,
}

impl Scopes {
    /// The number of a scope that has tasks.
    pub(super) fn number(&self, scope: &Scope) -> Option<u32> {
        self.numbers.get(scope).copied()
    }

    /// The number of a scope, whether it has tasks or is about to.
    pub(super) fn enter(&mut self, scope: &Scope) -> u32 {
        if self.scope(self.last) != Some(scope) {
            self.last = self.number(scope).unwrap_or_else(|| self.make(scope));
        }
        self.last
    }

    fn make(&mut self, scope: &Scope) -> u32 {
        let house = self.house(&scope.agent, &scope.tenant).unwrap_or_else(|| {
            let (agent, tenant) = (scope.agent.clone(), scope.tenant.clone());
            self.houses.push(House {
                agent,
                tenant,
                tally: Tally::default(),
            });
            self.houses.len() - 1
        });
        let room = Some(Room {
            scope: scope.clone(),
            house,
            places: Order::default(),
        });
        let number = match self.free.pop() {
            Some(number) => {
                self.rooms[number as usize] = room;
                number
            }
            None => {
                self.rooms.push(room);
                // There are no more scopes than tasks, which have such numbers too.
                (self.rooms.len() - 1) as u32
            }
        };
        self.numbers.insert(scope.clone(), number);
        number
    }

    /// The scope of a number that was given.
    pub(super) fn scope(&self, number: u32) -> Option<&Scope> {
        self.room(number).map(|room| &room.scope)
    }

    /// The tasks of a scope, oldest status first.
    pub(super) fn places(&self, number: u32) -> impl DoubleEndedIterator<Item = Place> {
        self.room(number)
            .into_iter()
            .flat_map(|room| room.places.iter())
    }

    /// How many tasks there are of an agent within a tenant, whoever owns them.
    pub(super) fn tally(&self, agent: &str, tenant: &str) -> Tally {
        self.house(agent, tenant)
            .map_or_else(Tally::default, |at| self.houses[at].tally)
    }

    fn house(&self, agent: &str, tenant: &str) -> Option<usize> {
        self.houses
            .iter()
            .position(|house| *house.agent == *agent && *house.tenant == *tenant)
    }

    /// Lists a task.
    pub(super) fn put(&mut self, number: u32, task: u32, listed: Listed) {
        let Some(room) = self.rooms.get_mut(number as usize).and_then(Option::as_mut) else {
            return;
        };
        room.places.insert(Place::new(listed.time, task));
        let tally = &mut self.houses[room.house].tally;
        tally.kept += 1;
        tally.open += u64::from(!listed.has_ended);
    }

    /// Takes a task to another place in the list.
    pub(super) fn move_to(&mut self, number: u32, task: u32, [old, new]: [Listed; 2]) {
        let Some(room) = self.rooms.get_mut(number as usize).and_then(Option::as_mut) else {
            return;
        };
        room.places.remove(Place::new(old.time, task));
        room.places.insert(Place::new(new.time, task));
        let tally = &mut self.houses[room.house].tally;
        tally.open = tally.open + u64::from(!new.has_ended) - u64::from(!old.has_ended);
    }

    /// Takes a task out of the list, and forgets the scope with its last one.
    pub(super) fn remove(&mut self, number: u32, task: u32, listed: Listed) {
        let Some(slot) = self.rooms.get_mut(number as usize) else {
            return;
        };
        let Some(room) = slot else { return };
        room.places.remove(Place::new(listed.time, task));
        let tally = &mut self.houses[room.house].tally;
        tally.kept -= 1;
        tally.open -= u64::from(!listed.has_ended);
        if room.places.is_empty() {
            self.numbers.remove(&room.scope);
            *slot = None;
            self.free.push(number);
        }
    }

    /// The newest time of all.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        let rooms = self.rooms.iter().flatten();
        rooms
            .filter_map(|room| room.places.last())
            .map(|place| place.time())
            .max()
    }

    fn room(&self, number: u32) -> Option<&Room> {
        self.rooms.get(number as usize)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_the_order_of_their_times() {
        let times = [
            -62_135_596_800_000,
            -1,
            0,
            1,
            4_294_967_295,
            4_294_967_296,
            253_402_207_200_999,
        ];
        let times = times.map(|millis| Timestamp::from_millis(millis).unwrap());
        let places = times.map(|time| Place::new(time, 7));
        assert!(places.is_sorted());
        assert_eq!(places.map(Place::time), times);
        assert!(Place::new(times[2], 8) > places[2] && Place::new(times[2], 8) < places[3]);
        assert_eq!(size_of::<Place>(), 12);
    }
}
