//! An entry that is in the log, with room for the forms it goes out in.

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use crate::model::Entry;

/// An entry of a log. Everybody who follows the log shares it, and what it looks like on the wire.
#[derive(Debug)]
pub(crate) struct Recorded {
    entry: Entry,
    /// Few are asked for, most often one.
    forms: Mutex<Vec<(u8, Arc<OnceLock<Bytes>>)>>,
}

impl Recorded {
    pub(super) fn new(entry: Entry) -> Self {
        Self { entry, forms: Mutex::default() }
    }

    /// The entry in a wire form: the first who asks writes it, the others share the bytes. What a form is, is
    /// nothing that we need to know.
    pub(crate) fn form(&self, form: u8, write: impl FnOnce(&Entry) -> Bytes) -> Bytes {
        // Written outside the lock: whoever wants another form need not wait for this one.
        self.place(form).get_or_init(|| write(&self.entry)).clone()
    }

    fn place(&self, form: u8) -> Arc<OnceLock<Bytes>> {
        // Places are added whole, so a panic elsewhere spoils nothing.
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, place)) = forms.iter().find(|(known, _)| *known == form) {
            return place.clone();
        }
        let place = Arc::<OnceLock<Bytes>>::default();
        forms.push((form, place.clone()));
        place
    }
}

impl Deref for Recorded {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Event, Seq, Timestamp};

    #[test]
    fn a_form_is_written_once() {
        let recorded =
            Recorded::new(Entry { seq: Seq(1), time: Timestamp::default(), event: Event::TurnStarted });
        let first = recorded.form(1, |_| Bytes::from("first"));
        assert_eq!(recorded.form(1, |_| unreachable!("it is there")), first);
        assert_eq!(recorded.form(2, |entry| entry.seq.0.to_string().into()), "1");
    }

    #[test]
    fn a_form_that_takes_long_to_write_holds_up_no_other() {
        let recorded =
            Recorded::new(Entry { seq: Seq(1), time: Timestamp::default(), event: Event::TurnStarted });
        let slow = recorded.form(1, |_| recorded.form(2, |_| Bytes::from("quick")));
        assert_eq!(slow, "quick");
    }
}
