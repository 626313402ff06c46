//! Values of an OpenMetrics text.

/// All samples of a text.
#[derive(Debug, Default)]
pub(super) struct MetricValues(Vec<MetricSample>);

#[derive(Debug)]
struct MetricSample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl MetricValues {
    /// Parses a text. Lines that are no samples are skipped.
    pub(super) fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(parse_line).collect())
    }

    /// The sum of a metric over the samples with these labels; 0 if there is none.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has_labels = |sample: &MetricSample| {
            labels.iter().all(|(label, value)| {
                sample
                    .labels
                    .iter()
                    .any(|(known, given)| known == label && given == value)
            })
        };
        let samples = self.0.iter();
        let samples = samples.filter(|sample| sample.name == name && has_labels(sample));
        // Not `sum`: that of no values is -0.
        samples.fold(0.0, |sum, sample| sum + sample.value)
    }
}

/// Parses `name{label="value",…} number`. The values of this program contain no quotes and no commas.
fn parse_line(line: &str) -> Option<MetricSample> {
    if line.starts_with('#') {
        return None;
    }
    let (series, rest) = match line.split_once("} ") {
        Some((series, rest)) => (series, rest),
        None => line.split_once(' ')?,
    };
    let value = rest.split(' ').next()?.parse().ok()?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels.split(',').filter_map(|label| {
        let (name, value) = label.split_once('=')?;
        Some((name.to_owned(), value.trim_matches('"').to_owned()))
    });
    Some(MetricSample {
        name: name.to_owned(),
        labels: labels.collect(),
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_their_labels() {
        let text = "# TYPE calls counter\ncalls_total{agent=\"a b\",outcome=\"ok\"} 3\n\
                    calls_total{agent=\"c\",outcome=\"ok\"} 4.5 1700000000\ncalls_total{agent=\"c\",outcome=\"no\"} 1\n\
                    open 2\n# EOF\n";
        let values = MetricValues::parse(text);
        let sum = |name, labels: &[(&str, &str)]| values.sum(name, labels).to_string();
        assert_eq!(sum("calls_total", &[]), "8.5");
        assert_eq!(sum("calls_total", &[("outcome", "ok")]), "7.5");
        assert_eq!(
            sum("calls_total", &[("outcome", "ok"), ("agent", "a b")]),
            "3"
        );
        assert_eq!(sum("open", &[]), "2");
        assert_eq!(sum("other", &[]), "0");
    }
}
