//! Query parameters of the REST binding.

use std::borrow::Cow;

use crate::model::{Error, TaskState, Timestamp};
use crate::wire::lenient::parse_state;

/// Query parameters. An empty value counts as absent.
pub(super) struct QueryParams<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> QueryParams<'a> {
    pub(super) fn read(query: &'a str) -> Self {
        Self(
            form_urlencoded::parse(query.as_bytes())
                .filter(|(_, value)| !value.is_empty())
                .collect(),
        )
    }

    /// Returns a parameter by its camelCase name. Also accepts snake_case, which the compatibility
    /// kit sends.
    ///
    /// # Errors
    /// Invalid parameters if the parameter occurs twice.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Error> {
        let mut values = self
            .0
            .iter()
            .filter(|(key, _)| key == name || is_snake_case_of(key, name))
            .map(|(_, value)| &**value);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(Error::invalid(name, "must be given only once")),
        }
    }

    pub(super) fn int(&self, name: &str) -> Result<Option<i32>, Error> {
        let parse = |text: &str| {
            parse_int(text).ok_or_else(|| Error::invalid(name, "must be a 32-bit whole number"))
        };
        self.text(name)?.map(parse).transpose()
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Error> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| Error::invalid(name, "must be true or false"))
        };
        self.text(name)?.map(parse).transpose()
    }

    pub(super) fn state(&self, name: &str) -> Result<Option<TaskState>, Error> {
        let parse = |text: &str| {
            parse_state(text).ok_or_else(|| {
                Error::invalid(name, "must be a task state such as TASK_STATE_WORKING")
            })
        };
        Ok(self
            .text(name)?
            .map(parse)
            .transpose()?
            .filter(|state| *state != TaskState::Unspecified))
    }

    pub(super) fn time(&self, name: &str) -> Result<Option<Timestamp>, Error> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|error: crate::model::InvalidTimestamp| {
                    Error::invalid(name, error.to_string())
                })
        };
        self.text(name)?.map(parse).transpose()
    }
}

/// Parses an integer in the ProtoJSON spellings `5` and `5.0`.
fn parse_int(text: &str) -> Option<i32> {
    let (digits, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let nothing = !fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0');
    digits.parse().ok().filter(|_| nothing)
}

fn is_snake_case_of(key: &str, name: &str) -> bool {
    let mut key = key.chars();
    for c in name.chars() {
        if c.is_ascii_uppercase() && key.next() != Some('_') {
            return false;
        }
        if key.next() != Some(c.to_ascii_lowercase()) {
            return false;
        }
    }
    key.next().is_none()
}

/// Writes the parameters that have a value.
pub(super) fn write_query(parameters: &[(&str, Option<String>)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in parameters {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault<T: std::fmt::Debug>(read: Result<T, Error>) -> (String, String) {
        let error = read.unwrap_err();
        (
            error.violations()[0].field().to_owned(),
            error.violations()[0].description().to_owned(),
        )
    }

    #[test]
    fn s66_parameters_are_parsed_strictly() {
        let query = QueryParams::read(
            "historyLength=5&pageSize=&unknown=x&a%20b=c+d&include_artifacts=true",
        );
        assert_eq!(query.int("historyLength").unwrap(), Some(5));
        assert_eq!(query.int("pageSize").unwrap(), None);
        assert_eq!(query.text("a b").unwrap(), Some("c d"));
        assert_eq!(query.flag("includeArtifacts").unwrap(), Some(true));
        for (text, number) in [("5.0", 5), ("-1.00", -1), ("007", 7)] {
            assert_eq!(
                QueryParams::read(&format!("pageSize={text}"))
                    .int("pageSize")
                    .unwrap(),
                Some(number)
            );
        }
        for bad in [
            "x",
            "1.5",
            "5.",
            ".0",
            "1.0.0",
            "NaN",
            "2147483648",
            "1e3",
            "+",
        ] {
            let query = format!("pageSize={bad}");
            assert_eq!(
                fault(QueryParams::read(&query).int("pageSize")).1,
                "must be a 32-bit whole number",
                "{bad}"
            );
        }
        let twice = QueryParams::read("pageSize=1&page_size=2");
        assert_eq!(
            fault(twice.int("pageSize")),
            ("pageSize".to_owned(), "must be given only once".to_owned())
        );
        assert_eq!(
            fault(QueryParams::read("f=TRUE").flag("f")).1,
            "must be true or false"
        );
        assert_eq!(
            fault(QueryParams::read("status=busy").state("status")).0,
            "status"
        );
        assert_eq!(
            fault(QueryParams::read("t=2026-03-14T09:00:00").time("t")).0,
            "t"
        );
        assert_eq!(
            QueryParams::read("status=TASK_STATE_UNSPECIFIED")
                .state("status")
                .unwrap(),
            None
        );
    }
}
