//! Scopes, by numbers: a task keeps four bytes of its own.

use std::collections::{BTreeSet, HashMap};

use crate::model::{Scope, Timestamp};

/// A task's place in an order: by time, and then by its number, which only tells tasks of one time apart.
///
/// Every task has two, so the time is in halves, which go together with the number in twelve bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    time: [u32; 2],
    pub(super) number: u32,
}

impl Place {
    pub(super) fn new(time: Timestamp, number: u32) -> Self {
        // So that what is before 1970 comes first.
        let time = (time.as_millis() ^ i64::MIN).cast_unsigned();
        Self { time: [(time >> 32) as u32, time as u32], number }
    }

    pub(super) fn time(self) -> Timestamp {
        let [high, low] = self.time.map(u64::from);
        Timestamp::from_millis((high << 32 | low).cast_signed() ^ i64::MIN).unwrap_or_default()
    }
}

/// The scopes that have tasks, and their tasks by the time of their status.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    numbers: HashMap<Scope, u32>,
    rooms: Vec<Option<Room>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Room {
    scope: Scope,
    places: BTreeSet<Place>,
}

impl Scopes {
    /// The number of a scope that has tasks.
    pub(super) fn number(&self, scope: &Scope) -> Option<u32> {
        self.numbers.get(scope).copied()
    }

    /// The number of a scope, whether it has tasks or is about to.
    pub(super) fn enter(&mut self, scope: &Scope) -> u32 {
        if let Some(number) = self.number(scope) {
            return number;
        }
        let room = Some(Room { scope: scope.clone(), places: BTreeSet::new() });
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
        self.room(number).into_iter().flat_map(|room| room.places.iter().copied())
    }

    /// The tasks of an agent within a tenant, whoever owns them.
    pub(super) fn places_of(&self, agent: &str, tenant: &str) -> impl Iterator<Item = Place> {
        let is_theirs = move |scope: &Scope| *scope.agent == *agent && *scope.tenant == *tenant;
        let rooms = self.rooms.iter().flatten().filter(move |room| is_theirs(&room.scope));
        rooms.flat_map(|room| room.places.iter().copied())
    }

    /// Lists a task.
    pub(super) fn put(&mut self, number: u32, place: Place) {
        if let Some(room) = self.rooms.get_mut(number as usize).and_then(Option::as_mut) {
            room.places.insert(place);
        }
    }

    /// Takes a task to another place in the list.
    pub(super) fn move_to(&mut self, number: u32, [old, new]: [Place; 2]) {
        if let Some(room) = self.rooms.get_mut(number as usize).and_then(Option::as_mut) {
            room.places.remove(&old);
            room.places.insert(new);
        }
    }

    /// Takes a task out of the list, and forgets the scope with its last one.
    pub(super) fn remove(&mut self, number: u32, place: Place) {
        let Some(slot) = self.rooms.get_mut(number as usize) else { return };
        let Some(room) = slot else { return };
        room.places.remove(&place);
        if room.places.is_empty() {
            self.numbers.remove(&room.scope);
            *slot = None;
            self.free.push(number);
        }
    }

    /// The newest time of all.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        let rooms = self.rooms.iter().flatten();
        rooms.filter_map(|room| room.places.last()).map(|place| place.time()).max()
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
        let times = [-62_135_596_800_000, -1, 0, 1, 4_294_967_295, 4_294_967_296, 253_402_207_200_999];
        let times = times.map(|millis| Timestamp::from_millis(millis).unwrap());
        let places = times.map(|time| Place::new(time, 7));
        assert!(places.is_sorted());
        assert_eq!(places.map(Place::time), times);
        assert!(Place::new(times[2], 8) > places[2] && Place::new(times[2], 8) < places[3]);
        assert_eq!(size_of::<Place>(), 12);
    }
}
