//! A bounded memory by task: what nobody has asked for again goes first.

use std::collections::{HashMap, VecDeque};

use crate::model::TaskId;

/// Remembers something of as many tasks as fit.
///
/// What was asked for since its turn to go last came stays for another round. That is nearly the order of use, and to ask
/// costs no more than a look and a mark.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    /// The most that all of it may weigh.
    most: usize,
    weight: usize,
    places: HashMap<TaskId, Place<T>>,
    /// Who goes next, by the number of the place: a task that was forgotten and came again has another.
    queue: VecDeque<(TaskId, u64)>,
    numbers: u64,
}

#[derive(Debug)]
struct Place<T> {
    value: T,
    weight: usize,
    number: u64,
    was_asked_for: bool,
}

impl<T> Recent<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            weight: 0,
            places: HashMap::new(),
            queue: VecDeque::new(),
            numbers: 0,
        }
    }

    /// What is remembered of a task, for one who asks for it.
    pub(crate) fn get(&mut self, id: &TaskId) -> Option<&T> {
        let place = self.places.get_mut(id)?;
        place.was_asked_for = true;
        Some(&place.value)
    }

    /// The same, for one who keeps it up to date.
    pub(crate) fn get_mut(&mut self, id: &TaskId) -> Option<&mut T> {
        self.places.get_mut(id).map(|place| &mut place.value)
    }

    /// Remembers something, in the place of what was remembered of the same task, if it fits at all.
    pub(crate) fn put(&mut self, id: &TaskId, weight: usize, value: T) {
        self.remove(id);
        if weight > self.most {
            return;
        }
        self.make_room(weight);
        self.numbers += 1;
        self.weight += weight;
        self.queue.push_back((id.clone(), self.numbers));
        let place = Place {
            value,
            weight,
            number: self.numbers,
            was_asked_for: false,
        };
        self.places.insert(id.clone(), place);
    }

    /// Takes note that what is remembered of a task has become heavier.
    pub(crate) fn grow(&mut self, id: &TaskId, by: usize) {
        let Some(place) = self.places.get_mut(id) else {
            return;
        };
        place.weight += by;
        self.weight += by;
        if place.weight > self.most {
            self.remove(id);
        }
        self.make_room(0);
    }

    /// Forgets a task.
    pub(crate) fn remove(&mut self, id: &TaskId) {
        let Some(place) = self.places.remove(id) else {
            return;
        };
        self.weight -= place.weight;
        // Those who were forgotten before their turn still stand in the queue: not for ever.
        if self.queue.len() > 2 * self.places.len() + 16 {
            let places = &self.places;
            self.queue
                .retain(|(id, number)| places.get(id).is_some_and(|place| place.number == *number));
        }
    }

    fn make_room(&mut self, weight: usize) {
        while self.weight + weight > self.most {
            let Some((id, number)) = self.queue.pop_front() else {
                return;
            };
            match self
                .places
                .get_mut(&id)
                .filter(|place| place.number == number)
            {
                Some(place) if place.was_asked_for => {
                    place.was_asked_for = false;
                    self.queue.push_back((id, number));
                }
                Some(_) => self.remove(&id),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(recent: &mut Recent<u32>, ids: &[&str]) -> Vec<u32> {
        ids.iter()
            .map(|id| recent.get(&TaskId::from(*id)).copied().unwrap_or_default())
            .collect()
    }

    #[test]
    fn what_nobody_asked_for_again_goes_first() {
        let mut recent = Recent::new(35);
        for (id, value) in [("a", 1), ("b", 2), ("c", 3)] {
            recent.put(&id.into(), 10, value);
        }
        assert_eq!(there(&mut recent, &["a", "c"]), [1, 3]);
        recent.put(&"d".into(), 10, 4);
        assert_eq!(there(&mut recent, &["a", "b", "c", "d"]), [1, 0, 3, 4]);
        recent.put(&"e".into(), 25, 5);
        assert_eq!(there(&mut recent, &["e"]), [5]);
        assert!(
            recent.weight <= 35 && recent.places.len() == 2,
            "as many go as must"
        );
    }

    #[test]
    fn what_is_too_large_is_not_remembered_and_moves_nobody() {
        let mut recent = Recent::new(35);
        recent.put(&"a".into(), 10, 1);
        recent.put(&"b".into(), 40, 2);
        assert_eq!(there(&mut recent, &["a", "b"]), [1, 0]);
    }

    #[test]
    fn what_becomes_heavier_makes_others_go_and_at_last_goes_itself() {
        let mut recent = Recent::new(35);
        recent.put(&"a".into(), 10, 1);
        recent.put(&"b".into(), 10, 2);
        there(&mut recent, &["b"]);
        recent.grow(&"b".into(), 20);
        assert_eq!(
            (there(&mut recent, &["a", "b"]), recent.weight),
            (vec![0, 2], 30)
        );
        recent.grow(&"b".into(), 6);
        recent.grow(&"b".into(), 6);
        assert_eq!((there(&mut recent, &["b"]), recent.weight), (vec![0], 0));
    }

    #[test]
    fn a_task_that_comes_and_goes_leaves_nothing_behind() {
        let mut recent = Recent::new(35);
        for value in 1..1_000 {
            recent.put(&"a".into(), 30, value);
            assert_eq!(there(&mut recent, &["a"]), [value]);
            recent.remove(&"a".into());
        }
        assert_eq!((recent.weight, recent.places.len()), (0, 0));
        assert!(recent.queue.len() <= 16);
    }
}
