//! Corpus of real bodies: the golden files, whole and in the pieces that readers accept.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

/// Returns every distinct body, params, result and event of the golden files.
pub(super) fn corpus() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            let golden = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            take(&golden, &mut found);
        }
    }
    found.insert(
        "id: 1\ndata: {\"task\":{}}\n\nevent: error\r\ndata: x\rdata: y\n\n: keep-alive\n\n"
            .to_owned(),
    );
    found.insert(
        "historyLength=5&pageSize=10&status=TASK_STATE_WORKING&pageToken=a%20b&includeArtifacts=true"
            .to_owned(),
    );
    found.insert("/brest/tasks/a%2Fb:cancel".to_owned());
    assert!(found.len() > 200, "only {} inputs", found.len());
    found.into_iter().collect()
}

fn take(value: &Value, found: &mut BTreeSet<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("rawBody", Value::String(raw)) => drop(found.insert(raw.clone())),
            (
                "body" | "params" | "result" | "error" | "data" | "input" | "v03" | "v10"
                | "message" | "task",
                value,
            ) => {
                found.insert(value.to_string());
            }
            _ => {}
        }
        take(value, found);
    }
    value
        .as_array()
        .into_iter()
        .flatten()
        .for_each(|value| take(value, found));
}
