//! `attache bench`: counts and reports.

use serde_json::Value;

use crate::harness::{attache, serve};

/// Runs a short benchmark; returns the exit code, the report and stderr.
fn bench(url: &str, args: &[&str]) -> (Option<i32>, Vec<Value>, String) {
    let output = attache(&["bench"])
        .args(args)
        .args(["-a", url, "-o", "json", "--warm-up", "0", "-c", "3"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "attache.bench/1");
    let results = report["results"].as_array().unwrap().clone();
    (
        output.status.code(),
        results,
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn every_scenario_is_measured_over_every_binding_and_version() {
    let server = serve(&["demo", "--store", "memory"]);
    let url = server.line("Listening on ");
    for version in ["1.0", "0.3"] {
        let args = [
            "send",
            "get",
            "stream",
            "--count",
            "9",
            "--message",
            "hello",
            "--a2a-version",
            version,
        ];
        let bindings = [
            "--transport",
            "jsonrpc",
            "--transport",
            "http+json",
            "--transport",
            "grpc",
        ];
        let (code, results, _) = bench(&url, &[&args[..], &bindings[..]].concat());
        assert_eq!((code, results.len()), (Some(0), 9), "{results:?}");
        for one in &results {
            assert_eq!(
                (&one["done"], &one["failed"]),
                (&9.into(), &0.into()),
                "{one}"
            );
            assert_eq!(one["version"], version);
            assert!(
                one["latencyMs"]["p50"].as_f64() <= one["latencyMs"]["max"].as_f64(),
                "{one}"
            );
            let streams = one["scenario"] == "stream";
            assert_eq!(one["firstEventMs"].is_object(), streams, "{one}");
            // The task or its first status, the chunk, the final status.
            assert!(!streams || one["events"].as_u64() >= Some(27), "{one}");
        }
    }
}

#[test]
fn idle_streams_are_held_and_their_tasks_canceled() {
    let server = serve(&["demo", "--store", "memory"]);
    let url = server.line("Listening on ");
    let (code, results, stderr) = bench(&url, &["fan-out", "idle", "--for", "1100ms"]);
    assert_eq!((code, results.len()), (Some(0), 2));
    for one in &results {
        assert_eq!(
            (&one["done"], &one["failed"]),
            (&3.into(), &0.into()),
            "{one}"
        );
    }
    assert!(
        stderr.contains("idle: 3 done, 0 failed, 1s of 1s"),
        "{stderr}"
    );
    let list = attache(&["task", "list", "-a", &url, "-o", "json"])
        .output()
        .unwrap();
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let tasks = list["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 4);
    assert!(
        tasks
            .iter()
            .all(|task| task["status"]["state"] == "TASK_STATE_CANCELED"),
        "{list}"
    );
}

#[test]
fn failures_are_counted_by_kind_and_no_result_is_a_failure() {
    let server = serve(&["demo", "--store", "memory"]);
    let url = server.line("Listening on ");
    let (code, results, stderr) = bench(&url, &["--count", "6", "--message", "reject"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        (&results[0]["done"], &results[0]["failed"]),
        (&0.into(), &6.into())
    );
    assert_eq!(results[0]["faults"]["ended as TASK_STATE_REJECTED"], 6);
    assert!(stderr.contains("nothing was measured"), "{stderr}");
    let (_, results, _) = bench(&url, &["get", "--message", "reply"]);
    assert_eq!(results[0]["faults"]["the agent answers without a task"], 1);
    let (code, results, _) = bench(
        &url,
        &["get", "send", "--count", "6", "--message", "reject"],
    );
    assert_eq!((&results[0]["failed"], code), (&0.into(), Some(1)));
}
