//! Whose work a piece of work is part of: how many agents stand before this one, who they are, and what may still be spent.
//!
//! It goes along with every message to another agent. What others say of it is never believed to our advantage: our own
//! limits hold, and it can only add to what is refused. Between servers of ours it is signed: what they say of it counts in
//! place of what a message says (`Word` in `auth` holds messages to that).

use std::time::Duration;

use attache::Turn;
use attache::model::{LINEAGE, MessageId, Object, Role, Task};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Its place in the metadata of a task that has cost something.
pub(crate) const USAGE_KEY: &str = "attache.usage";
/// Its place in the metadata of a task that a model has passed on: what that choice has cost.
pub(crate) const ROUTING_COST_KEY: &str = "attache.routed";
/// How long a line is believed at most.
const MAX_PATH_LENGTH: usize = 64;

/// Where a piece of work comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Lineage {
    /// How many agents stand before this one.
    depth: u32,
    /// Whom they called, the first one first: names of places that tell nobody where they are.
    path: Vec<String>,
    /// Who has worked on it, by names that only they know as theirs.
    agents: Vec<String>,
    /// Tokens that may still be spent.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    /// How often models may still be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    /// How long it may still take. A time from now, since clocks differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    milliseconds: Option<u64>,
}

/// What may still be spent on a piece of work; `None`: as much as it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) tokens: Option<u64>,
    pub(crate) calls: Option<u64>,
    pub(crate) time: Option<Duration>,
}

/// What a piece of work has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Cost {
    pub(crate) calls: u64,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
}

/// What an agent may pass on to others.
#[derive(Debug, Clone)]
pub(crate) struct DelegationLimits {
    /// Its own name in lines.
    pub(crate) agent_id: MessageId,
    /// How many agents may stand behind each other.
    pub(crate) max_depth: u32,
    pub(crate) remaining: Budget,
}

impl Lineage {
    /// Of the message that the task began with.
    pub(crate) fn from_turn(turn: &Turn) -> Self {
        let first = turn
            .task()
            .history
            .iter()
            .find(|message| message.role == Role::User);
        let said =
            first.and_then(|first| first.metadata.as_ref()?.get(LINEAGE)?.read::<Self>().ok());
        let mut lineage = said.unwrap_or_default();
        lineage.path.truncate(MAX_PATH_LENGTH);
        lineage.agents.truncate(MAX_PATH_LENGTH);
        lineage.depth = lineage
            .depth
            .max(u32::try_from(lineage.path.len()).unwrap_or(u32::MAX));
        lineage
    }

    /// What whoever asks lets it cost.
    pub(crate) fn budget(&self) -> Budget {
        Budget {
            tokens: self.tokens,
            calls: self.calls,
            time: self.milliseconds.map(Duration::from_millis),
        }
    }

    /// Why an agent of this name may not work on it, in words for whoever asked.
    pub(crate) fn cycle_refusal(&self, agent_id: &MessageId) -> Option<&'static str> {
        self.agents
            .iter()
            .any(|name| *name == agent_id.as_str())
            .then_some(CYCLE_REFUSED)
    }

    /// One more agent behind this one, if there may be.
    ///
    /// # Errors
    /// Why not, in words for a model. Nothing has been sent to anybody.
    pub(crate) fn extend(&self, place: &str, leave: &DelegationLimits) -> Result<Self, String> {
        let (
            name,
            DelegationLimits {
                agent_id,
                max_depth,
                remaining,
            },
        ) = (digest(place), leave);
        if self
            .path
            .iter()
            .any(|called| *called == name || called == place)
        {
            return Err(CYCLE_REFUSED.to_owned());
        }
        let depth = self.depth.saturating_add(1);
        if depth >= *max_depth {
            return Err(format!(
                "refused: there may be at most {max_depth} agents behind each other"
            ));
        }
        if let Some(what) = remaining.exhausted_resource() {
            return Err(format!(
                "refused: there is no {what} left for this work; answer with what you have"
            ));
        }
        Ok(Self {
            depth,
            path: self.path.iter().cloned().chain([name]).collect(),
            agents: self
                .agents
                .iter()
                .cloned()
                .chain([agent_id.to_string()])
                .collect(),
            tokens: remaining.tokens,
            calls: remaining.calls,
            milliseconds: remaining
                .time
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        })
    }

    /// Writes it into the metadata of a message.
    pub(crate) fn write(&self, metadata: &mut Object) {
        metadata.insert(LINEAGE, self.to_value());
    }

    /// As it is sent.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

const CYCLE_REFUSED: &str =
    "refused: this agent already works on the same request, and would be called in a circle";

impl Budget {
    /// The smaller of two, thing by thing.
    pub(crate) fn min(self, other: Self) -> Self {
        fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            one.into_iter().chain(other).min()
        }
        Self {
            tokens: least(self.tokens, other.tokens),
            calls: least(self.calls, other.calls),
            time: least(self.time, other.time),
        }
    }

    /// What is left of it after something was spent.
    pub(crate) fn minus(self, cost: Cost) -> Self {
        Self {
            tokens: self.tokens.map(|most| most.saturating_sub(cost.tokens())),
            calls: self.calls.map(|most| most.saturating_sub(cost.calls)),
            ..self
        }
    }

    /// The share of each of so many that work at the same time, so that all together do not spend more. Where there is less
    /// than one for each, nobody gets anything.
    pub(crate) fn divided_by(self, among: usize) -> Self {
        let among = u64::try_from(among.max(1)).unwrap_or(u64::MAX);
        let share = |most: u64| most / among;
        Self {
            tokens: self.tokens.map(share),
            calls: self.calls.map(share),
            ..self
        }
    }

    /// What of it is used up, if anything.
    fn exhausted_resource(&self) -> Option<&'static str> {
        let used_up = [
            ("budget of tokens", self.tokens == Some(0)),
            ("budget of calls", self.calls == Some(0)),
            ("time", self.time.is_some_and(|time| time.is_zero())),
        ];
        used_up
            .into_iter()
            .find(|(_, spent)| *spent)
            .map(|(what, _)| what)
    }
}

tokio::task_local! {
    /// What was spent on a turn before the agent that works on it was asked: its task does not tell of it yet.
    static ROUTING_COST: Cost;
}

impl Cost {
    /// What was spent on a task by whoever passed it on, before the agent that works on it was asked.
    pub(crate) fn routing_cost(turn: &Turn) -> Self {
        let told = turn
            .task()
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(ROUTING_COST_KEY)?.read().ok());
        told.or_else(|| ROUTING_COST.try_with(|cost| *cost).ok())
            .unwrap_or_default()
    }

    /// Does some work after this was spent.
    pub(crate) async fn run_after_routing<T>(self, work: impl Future<Output = T>) -> T {
        ROUTING_COST.scope(self, work).await
    }

    /// Adds it to what the metadata of a task says that it has cost.
    pub(crate) fn add_to(self, metadata: &mut Object) {
        let Some(said) = metadata.get(USAGE_KEY) else {
            return;
        };
        let (Ok(cost), Ok(Value::Object(mut usage))) = (said.read::<Self>(), said.read()) else {
            return;
        };
        if let Ok(Value::Object(all)) = serde_json::to_value(cost.plus(self)) {
            usage.extend(all);
            metadata.insert(USAGE_KEY, Value::Object(usage));
        }
    }

    /// What a task says that it has cost.
    pub(crate) fn from_task(task: &Task) -> Self {
        let said = task
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(USAGE_KEY)?.read().ok());
        said.unwrap_or_default()
    }

    pub(crate) fn plus(self, more: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(more.calls),
            input_tokens: self.input_tokens.saturating_add(more.input_tokens),
            output_tokens: self.output_tokens.saturating_add(more.output_tokens),
        }
    }

    pub(crate) fn tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// A name for a place that tells nobody where it is.
pub(crate) fn digest(url: &str) -> String {
    // FNV-1a: it only has to be the same tomorrow.
    let hash = url.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave(agent_id: &str, max_depth: u32) -> DelegationLimits {
        DelegationLimits {
            agent_id: agent_id.into(),
            max_depth,
            remaining: Budget::default(),
        }
    }

    #[test]
    fn s59_nobody_is_called_in_a_circle() {
        let a = Lineage::default()
            .extend("http://b", &leave("a", 8))
            .unwrap();
        let b = a.extend("http://a", &leave("b", 8)).unwrap();
        assert!(
            b.extend("http://b", &leave("a", 8))
                .unwrap_err()
                .contains("circle")
        );
        assert!(b.extend("http://c", &leave("a", 8)).is_ok());
        assert!(
            b.extend("http://c", &leave("a", 3))
                .unwrap_err()
                .contains("at most 3")
        );
        // Whatever the place is called: an agent knows itself.
        assert!(b.cycle_refusal(&"a".into()).unwrap().contains("circle"));
        assert_eq!(b.cycle_refusal(&"c".into()), None);
        assert!(
            !format!("{b:?}").contains("http"),
            "nobody is told where the others are"
        );
    }

    #[test]
    fn r40_what_is_spent_is_not_spent_again() {
        let most = Budget {
            tokens: Some(100),
            calls: Some(3),
            time: Some(Duration::from_secs(9)),
        };
        let said = Budget {
            tokens: Some(u64::MAX),
            calls: Some(2),
            time: None,
        };
        let both = most.min(said);
        assert_eq!(
            both,
            Budget {
                tokens: Some(100),
                calls: Some(2),
                ..most
            }
        );
        let cost = Cost {
            calls: 1,
            input_tokens: 50,
            output_tokens: 9,
        };
        let remaining = both.minus(cost);
        assert_eq!((remaining.tokens, remaining.calls), (Some(41), Some(1)));
        assert_eq!(remaining.divided_by(2).tokens, Some(20));
        let refused = |remaining: Budget| {
            Lineage::default()
                .extend(
                    "http://b",
                    &DelegationLimits {
                        remaining,
                        ..leave("a", 8)
                    },
                )
                .unwrap_err()
        };
        assert!(
            refused(Budget {
                tokens: None,
                ..remaining.minus(cost)
            })
            .contains("calls")
        );
        assert!(
            refused(Budget {
                calls: None,
                ..remaining.minus(cost)
            })
            .contains("tokens")
        );
        assert!(
            refused(Budget {
                time: Some(Duration::ZERO),
                ..remaining
            })
            .contains("time")
        );
        assert!(
            refused(remaining.divided_by(2)).contains("calls"),
            "one call is not enough for two"
        );
    }

    #[test]
    fn what_was_spent_before_is_added_and_the_rest_of_it_stays() {
        let mut metadata: Object = serde_json::from_str(
            r#"{"attache.usage": {"model": "m", "calls": 2, "inputTokens": 30, "outputTokens": 4}, "mine": 1}"#,
        )
        .unwrap();
        Cost {
            calls: 1,
            input_tokens: 10,
            output_tokens: 2,
        }
        .add_to(&mut metadata);
        let all: Value = serde_json::from_str(metadata.as_str()).unwrap();
        let usage =
            serde_json::json!({"model": "m", "calls": 3, "inputTokens": 40, "outputTokens": 6});
        assert_eq!(all, serde_json::json!({"attache.usage": usage, "mine": 1}));
        let mut nothing = Object::new();
        Cost {
            calls: 1,
            ..Cost::default()
        }
        .add_to(&mut nothing);
        assert!(nothing.is_empty());
    }
}
