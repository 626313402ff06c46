//! Access control: authentication, lockout, rules, rate limits and quotas, over every binding and version.

use std::num::NonZeroU32;

use attache::auth::{Access, AccessRule, ApiKeys, CallerLimits};
use attache::model::{
    AgentSkill, Binding, ErrorKind, ListTasksRequest, Message, Object, Operation,
    SendMessageRequest, TaskState, Version,
};
use attache::{Client, HostedAgent, Server, ServerSettings};
use serde_json::{Value, json};

use super::isolation::{ANN, BOB, authenticated, keys};
use super::{
    TextCommandAgent, begin, cancel, error_kind, find, get, message, message_to, send, send_text,
};
use crate::harness::everywhere::{can_list, card, everywhere_on, has_tenants};
use crate::harness::{Answer, WIRE_FORMATS, run};

const CARL: &str = "carl-has-a-long-key-0003";

fn server(access: Access) -> Server {
    Server::new(card(), TextCommandAgent).access(access)
}

#[tokio::test]
async fn s34_s41_an_unauthenticated_caller_learns_nothing_else() {
    everywhere_on(
        || server(Access::new(keys())),
        async |client: Client| {
            let clients: Vec<_> = ["", "x", "ann", &ANN[..22], &format!("{ANN}x"), "att_0000"]
                .into_iter()
                .map(|key| {
                    if key.is_empty() {
                        client.clone()
                    } else {
                        authenticated(&client, key)
                    }
                })
                .collect();
            for client in clients {
                let sent = client.send_message(message("hi")).await.unwrap_err();
                assert_eq!(sent.kind(), ErrorKind::Unauthenticated);
                let found = find(&client, &"t".into()).await.unwrap_err();
                assert_eq!(
                    (found.kind(), found.message()),
                    (sent.kind(), sent.message())
                );
            }
            assert_eq!(
                send_text(&authenticated(&client, ANN), "hi")
                    .await
                    .history
                    .len(),
                1
            );
        },
    )
    .await;
}

#[tokio::test]
async fn s41_failed_logins_lock_the_address_out() {
    everywhere_on(
        || server(Access::new(keys()).max_failed_logins_per_minute(Some(2))),
        async |client: Client| {
            for _ in 0..2 {
                let failed = authenticated(&client, "nonsense")
                    .send_message(message("hi"))
                    .await
                    .unwrap_err();
                assert_eq!(failed.kind(), ErrorKind::Unauthenticated);
            }
            let refused = authenticated(&client, "nonsense")
                .send_message(message("hi"))
                .await
                .unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::RateLimited);
        },
    )
    .await;
}

#[tokio::test]
async fn d06_a_lockout_refuses_no_valid_credential() {
    everywhere_on(
        || server(Access::new(keys()).max_failed_logins_per_minute(Some(2))),
        async |client: Client| {
            let guess = authenticated(&client, "nonsense");
            for expected in [
                ErrorKind::Unauthenticated,
                ErrorKind::Unauthenticated,
                ErrorKind::RateLimited,
            ] {
                let refused = guess.send_message(message("hi")).await.unwrap_err();
                assert_eq!(refused.kind(), expected);
            }
            let task = authenticated(&client, ANN)
                .send_message(message("hi"))
                .await
                .unwrap();
            assert!(task.task().is_some());
            let refused = guess.send_message(message("hi")).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::RateLimited);
        },
    )
    .await;
}

#[tokio::test]
async fn s34_a_401_names_the_accepted_schemes() {
    let server = run(server(Access::new(keys()))).await;
    for form in WIRE_FORMATS {
        let ask = form.ask(
            "SendMessage",
            json!({"message": form.message("hi", json!({}))}),
        );
        let answer = server.ask(&ask).await;
        assert_eq!(answer.status, 401, "{answer:?}");
        assert!(
            answer.head.contains("www-authenticate: bearer realm="),
            "{answer:?}"
        );
        assert!(
            answer.head.contains("www-authenticate: apikey "),
            "{answer:?}"
        );
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(
            body["error"]["code"],
            if form.is_rpc() { -31401 } else { 401 }
        );
        assert_eq!(body["error"]["message"], "Authentication required");
        // An invalid credential is refused like a missing one.
        let answer = server
            .ask(&ask.with("Authorization", "Bearer nonsense"))
            .await;
        assert_eq!(answer.status, 401);
    }
    for public in [
        "/.well-known/agent-card.json",
        "/.well-known/ai-catalog.json",
        "/healthz",
        "/readyz",
    ] {
        assert_eq!(server.get(public).await.status, 200, "{public}");
    }
    for protected in [
        "/tasks",
        "/extendedAgentCard",
        "/v1/card",
        "/tasks/x",
        "/nothing/like/it",
    ] {
        assert_eq!(server.get(protected).await.status, 401, "{protected}");
    }
}

#[tokio::test]
async fn s84_ambiguous_credentials_are_refused() {
    let server = run(server(Access::new(keys()).allow_anonymous())).await;
    let ask = WIRE_FORMATS[0].ask("ListTasks", json!({}));
    for (name, value) in [
        (
            "Authorization",
            format!("Bearer {ANN}\r\nAuthorization: Bearer {BOB}"),
        ),
        ("Authorization", format!("Bearer {ANN}\r\nX-API-Key: {BOB}")),
    ] {
        assert_eq!(
            server.ask(&ask.clone().with(name, &value)).await.status,
            401
        );
    }
    assert_eq!(server.ask(&ask).await.status, 200);
}

fn card_with_skills() -> attache::AgentCard {
    card()
        .skill(AgentSkill::new("refund", "Refund", "Pays back"))
        .skill(AgentSkill::new("look", "Look", "Looks"))
}

fn access_with_rules() -> Access {
    let keys = ApiKeys::new();
    keys.add("ann", &ANN.into(), |ann| ann.scopes(["refunds", "cancel"]))
        .unwrap();
    keys.add("bob", &BOB.into(), |bob| bob).unwrap();
    Access::new(keys)
        .rule(AccessRule::require(["refunds"]).skill("refund"))
        .rule(AccessRule::require(["cancel"]).operations([Operation::CancelTask]))
}

fn request_with_skill(id: &str) -> SendMessageRequest {
    let mut message = Message::user("please");
    message.metadata = Some(Object::from_iter([("skillId", Value::from(id))]));
    SendMessageRequest::new(message)
}

#[tokio::test]
async fn s36_rules_apply_to_skills_and_operations() {
    everywhere_on(
        || {
            Server::new(card_with_skills(), TextCommandAgent)
                .access(access_with_rules().allow_anonymous())
        },
        async |client: Client| {
            let ann = authenticated(&client, ANN);
            let bob = authenticated(&client, BOB);
            ann.send_message(request_with_skill("refund"))
                .await
                .unwrap();
            let denied = bob
                .send_message(request_with_skill("refund"))
                .await
                .unwrap_err();
            assert_eq!(denied.kind(), ErrorKind::PermissionDenied);
            assert_eq!(
                error_kind(client.send_message(request_with_skill("refund")).await),
                ErrorKind::Unauthenticated
            );
            for client in [&bob, &client] {
                client
                    .send_message(request_with_skill("look"))
                    .await
                    .unwrap();
            }
            let anns_task = begin(&ann, "ask").await;
            let bobs_task = begin(&bob, "ask").await;
            cancel(&ann, &anns_task.id).await.unwrap();
            assert_eq!(
                error_kind(cancel(&bob, &bobs_task.id).await),
                ErrorKind::PermissionDenied
            );
            assert!(!get(&bob, &bobs_task).await.is_ended());
        },
    )
    .await;
}

#[tokio::test]
async fn s36_a_403_names_the_missing_scopes() {
    let running =
        run(Server::new(card_with_skills(), TextCommandAgent).access(access_with_rules())).await;
    for form in WIRE_FORMATS {
        let ask = form.ask("CancelTask", json!({"id": "x"}));
        let answer = running.ask(&ask.clone().with("X-API-Key", BOB)).await;
        let needed = "bearer realm=\"attache\", error=\"insufficient_scope\", scope=\"cancel\"";
        assert_eq!(
            (answer.status, answer.header("www-authenticate")),
            (403, Some(needed))
        );
        let answer = running.ask(&ask.with("X-API-Key", ANN)).await;
        assert_eq!(answer.header("www-authenticate"), None);
    }
}

#[tokio::test]
async fn s67_without_authentication_callers_are_limited_by_address() {
    let mut limits = CallerLimits::default();
    limits.calls_per_second = NonZeroU32::new(1);
    limits.burst = NonZeroU32::new(2).unwrap();
    limits.limit_loopback = true;
    let running = run(Server::new(card(), TextCommandAgent).caller_limits(limits)).await;
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(
            running
                .ask(&WIRE_FORMATS[0].ask("ListTasks", json!({})))
                .await
                .status,
        );
    }
    assert!(
        statuses.starts_with(&[200, 200]) && statuses.contains(&429),
        "{statuses:?}"
    );
}

/// Requests of a trusted proxy come from the address that it reports.
#[tokio::test]
async fn d08_anonymous_callers_are_limited_by_default_except_on_loopback() {
    let ask = WIRE_FORMATS[0].ask("ListTasks", json!({}));
    let from = |client: &str| ask.clone().with("X-Forwarded-For", client);
    let remaining = |answer: &Answer| {
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
            .header("x-ratelimit-remaining")
            .map(|text| text.parse::<u32>().unwrap())
    };
    let mut behind_proxy = ServerSettings::default();
    behind_proxy.trusted_proxies = vec!["127.0.0.1".parse().unwrap()];
    for access in [None, Some(Access::new(keys()).allow_anonymous())] {
        let server = Server::new(card(), TextCommandAgent)
            .allow_anonymous()
            .server_settings(behind_proxy.clone());
        let running = run(match access {
            Some(access) => server.access(access),
            None => server,
        })
        .await;
        let first = running.ask(&from("198.51.100.1")).await;
        assert_eq!(first.header("x-ratelimit-limit"), Some("400"));
        assert_eq!(remaining(&first), Some(399));
        let other = running.ask(&from("198.51.100.2")).await;
        assert_eq!(remaining(&other), Some(399), "each address has its own");
        // The proxy could have forgotten the header: this may not be a local caller.
        assert_eq!(remaining(&running.ask(&ask).await), Some(399));
    }
    let local = run(Server::new(card(), TextCommandAgent)).await;
    assert_eq!(remaining(&local.ask(&ask).await), None);
    let public = Server::new(card(), TextCommandAgent)
        .allow_anonymous()
        .public_url("https://agents.example.com");
    let public = run(public).await;
    assert_eq!(remaining(&public.ask(&ask).await), Some(399));
}

#[tokio::test]
async fn s37_the_extended_card_requires_authentication_and_is_filtered_by_scope() {
    let extended = || card_with_skills().skill(AgentSkill::new("audit", "Audit", "Audits"));
    let server = || {
        Server::new(card_with_skills(), TextCommandAgent)
            .extended_card(extended())
            .access(access_with_rules().allow_anonymous())
    };
    everywhere_on(server, async |client: Client| {
        assert_eq!(
            error_kind(client.get_extended_agent_card().await),
            ErrorKind::Unauthenticated
        );
        assert_eq!(
            error_kind(authenticated(&client, "x").get_extended_agent_card().await),
            ErrorKind::Unauthenticated
        );
        let skills = async |client: Client| {
            let card = client.get_extended_agent_card().await.unwrap();
            card.skills
                .into_iter()
                .map(|skill| skill.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            skills(authenticated(&client, ANN)).await,
            ["refund", "look", "audit"]
        );
        assert_eq!(skills(authenticated(&client, BOB)).await, ["look", "audit"]);
    })
    .await;
    let running = run(server()).await;
    for form in WIRE_FORMATS {
        let ask = form
            .ask("GetExtendedAgentCard", json!({}))
            .with("X-API-Key", BOB);
        let answer = running.ask(&ask).await;
        assert_eq!(
            (answer.status, answer.header("cache-control")),
            (200, Some("private, no-store"))
        );
    }
}

#[tokio::test]
async fn s10_s35_tenants_and_agents_are_restricted_by_identity() {
    let server = || {
        let keys = keys();
        keys.add("carl", &CARL.into(), |carl| {
            carl.agents(["Echo"]).tenants(["acme"])
        })
        .unwrap();
        let access = Access::new(keys);
        Server::new(card(), TextCommandAgent)
            .tenants(["acme", "globex"])
            .agent(HostedAgent::new("other", card(), TextCommandAgent))
            .access(access)
    };
    everywhere_on(server, async |client: Client| {
        if !has_tenants(&client) {
            return;
        }
        let at = |key, tenant: &str| authenticated(&client, key).with_tenant(tenant);
        at(CARL, "acme").send_message(message("hi")).await.unwrap();
        // A forbidden tenant is indistinguishable from one that does not exist.
        let foreign = at(CARL, "globex")
            .send_message(message("hi"))
            .await
            .unwrap_err();
        let unknown = at(CARL, "nowhere")
            .send_message(message("hi"))
            .await
            .unwrap_err();
        assert_eq!(foreign.kind(), ErrorKind::TaskNotFound);
        assert_eq!(format!("{foreign:?}"), format!("{unknown:?}"));
        assert_eq!(
            error_kind(at(ANN, "acme").send_message(message("hi")).await),
            ErrorKind::TaskNotFound
        );
        assert_eq!(
            error_kind(at(CARL, "other").send_message(message("hi")).await),
            ErrorKind::PermissionDenied
        );
        at(ANN, "other").send_message(message("hi")).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn s36_the_card_declares_the_enforced_rules_in_every_version() {
    let running =
        run(Server::new(card_with_skills(), TextCommandAgent).access(access_with_rules())).await;
    let card = running.get("/.well-known/agent-card.json").await.json();
    assert_eq!(
        card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"],
        "Bearer"
    );
    assert_eq!(card["securitySchemes"]["bearer"]["type"], "http");
    assert_eq!(card["securitySchemes"]["headerKey"]["in"], "header");
    let requirements =
        json!([{"schemes": {"bearer": {"list": []}}}, {"schemes": {"headerKey": {"list": []}}}]);
    assert_eq!(card["securityRequirements"], requirements);
    assert_eq!(card["security"], json!([{"bearer": []}, {"headerKey": []}]));
    assert_eq!(card["skills"][0]["security"], card["security"]);
    assert_eq!(card["skills"][1].get("security"), None);
    let open = run(Server::new(card_with_skills(), TextCommandAgent)
        .access(access_with_rules().allow_anonymous()))
    .await;
    let card = open.get("/.well-known/agent-card.json").await.json();
    assert_eq!(
        card["security"],
        json!([{"bearer": []}, {"headerKey": []}, {}])
    );
}

fn limited_server(change: impl Fn(&mut CallerLimits)) -> Server {
    let mut limits = CallerLimits::default();
    limits.limit_loopback = true;
    change(&mut limits);
    server(Access::new(keys()).allow_anonymous().limits(limits))
}

#[tokio::test]
async fn s67_calls_per_second_are_limited_per_caller() {
    let slow = |limits: &mut CallerLimits| {
        limits.calls_per_second = NonZeroU32::new(1);
        limits.burst = NonZeroU32::new(2).unwrap();
    };
    everywhere_on(
        || limited_server(slow),
        async |client: Client| {
            let ann = authenticated(&client, ANN);
            let bob = authenticated(&client, BOB);
            let mut refusals = Vec::new();
            // One call is refilled in every second that the loop takes.
            for _ in 0..20 {
                refusals.extend(
                    find(&ann, &"x".into())
                        .await
                        .err()
                        .filter(|error| error.kind() == ErrorKind::RateLimited),
                );
            }
            let refusal = refusals.first().expect("twenty calls exceed the burst");
            assert!(refusal.retry_after().is_some());
            assert_eq!(
                error_kind(find(&bob, &"x".into()).await),
                ErrorKind::TaskNotFound
            );
            // Anonymous callers are limited by address.
            assert_eq!(
                error_kind(find(&client, &"x".into()).await),
                ErrorKind::TaskNotFound
            );
        },
    )
    .await;
}

/// Bytes have a limit of their own, per caller.
#[tokio::test]
async fn s67_bytes_per_minute_are_limited_per_caller() {
    everywhere_on(
        || limited_server(|limits| limits.bytes_per_minute = NonZeroU32::new(6_000)),
        async |client: Client| {
            let ann = authenticated(&client, ANN);
            let bob = authenticated(&client, BOB);
            let long = || message(&"x".repeat(4_000));
            ann.send_message(long()).await.unwrap();
            let refusal = ann.send_message(long()).await.unwrap_err();
            assert_eq!(refusal.kind(), ErrorKind::RateLimited);
            assert!(refusal.message().contains("bytes"), "{refusal}");
            assert!(refusal.retry_after().is_some());
            bob.send_message(long()).await.unwrap();
            assert_eq!(
                error_kind(find(&ann, &"x".into()).await),
                ErrorKind::TaskNotFound,
                "a small request still fits"
            );
        },
    )
    .await;
}

/// Malformed requests count against the limits.
#[tokio::test]
async fn s62_s67_malformed_requests_are_rate_limited() {
    let post = |path: &str, body: &str| {
        (
            format!("POST {path} HTTP/1.1\r\nContent-Type: application/json"),
            body.to_owned(),
        )
    };
    for (head, body) in [
        post("/", "{"),
        post("/", r#"{"jsonrpc":"2.0","id":1,"method":"Nothing"}"#),
        post(
            "/",
            r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":7}}"#,
        ),
        (
            "POST / HTTP/1.1\r\nContent-Type: text/plain".to_owned(),
            "{}".to_owned(),
        ),
        post("/message:send", "{"),
        post("/message:nothing", "{}"),
        ("GET /message:send HTTP/1.1".to_owned(), String::new()),
        post("/v1/chat/completions", "{"),
        post(
            "/v1/chat/completions",
            r#"{"model":"nobody","messages":[{"role":"user","content":"hi"}]}"#,
        ),
        ("GET /v1/models HTTP/1.1".to_owned(), String::new()),
    ] {
        let running = run(limited_server(|limits| {
            limits.calls_per_second = NonZeroU32::new(1);
            limits.burst = NonZeroU32::new(3).unwrap();
        }))
        .await;
        let mut statuses = Vec::new();
        // One call is refilled in every second that the loop takes.
        while statuses.len() < 20 && !statuses.contains(&429) {
            statuses.push(running.send(&head, body.as_bytes()).await.status);
        }
        assert_eq!(
            statuses.iter().position(|status| *status == 429),
            Some(3),
            "{head} {body} {statuses:?}"
        );
    }
    let running = run(limited_server(|limits| {
        limits.bytes_per_minute = NonZeroU32::new(6_000)
    }))
    .await;
    let junk = "{".repeat(4_000);
    for status in [200, 429] {
        assert_eq!(running.post("/", &junk).await.status, status);
    }
}

#[tokio::test]
async fn s67_responses_have_rate_limit_headers() {
    let running = run(limited_server(|limits| {
        limits.burst = NonZeroU32::new(1).unwrap()
    }))
    .await;
    let ask = WIRE_FORMATS[0]
        .ask("ListTasks", json!({}))
        .with("X-API-Key", ANN);
    let answer = running.ask(&ask).await;
    assert_eq!(
        (
            answer.header("x-ratelimit-limit"),
            answer.header("x-ratelimit-remaining")
        ),
        (Some("1"), Some("0"))
    );
    let refused = loop {
        let answer = running.ask(&ask).await;
        if answer.status == 429 {
            break answer;
        }
    };
    assert_eq!(
        (
            refused.header("x-ratelimit-limit"),
            refused.header("x-ratelimit-remaining")
        ),
        (Some("1"), Some("0"))
    );
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.json()["error"]["code"], -32000);
}

#[tokio::test]
async fn s65_waiting_tasks_of_a_caller_are_limited() {
    everywhere_on(
        || limited_server(|limits| limits.waiting_tasks = Some(2)),
        async |client: Client| {
            let ann = authenticated(&client, ANN);
            let bob = authenticated(&client, BOB);
            let first = send_text(&ann, "ask").await;
            send_text(&ann, "auth").await;
            assert_eq!(
                error_kind(ann.send_message(message("ask")).await),
                ErrorKind::RateLimited
            );
            send_text(&bob, "ask").await;
            cancel(&ann, &first.id).await.unwrap();
            send_text(&ann, "ask").await;
        },
    )
    .await;
}

#[tokio::test]
async fn s72_open_tasks_of_a_caller_are_limited() {
    let server = || limited_server(|limits| limits.open_tasks = Some(2));
    everywhere_on(server, async |client: Client| {
        let ann = authenticated(&client, ANN);
        let first = begin(&ann, "hang").await;
        begin(&ann, "ask").await;
        assert_eq!(
            error_kind(ann.send_message(message("hi")).await),
            ErrorKind::RateLimited
        );
        cancel(&ann, &first.id).await.unwrap();
        send_text(&ann, "hi").await;
    })
    .await;
}

/// A server with two tenants, two callers who may use both, and anonymous callers.
fn tenant_server(change: impl Fn(&mut CallerLimits)) -> Server {
    let keys = ApiKeys::new();
    let mut limits = CallerLimits::default();
    for (name, key) in [("ann", ANN), ("bob", BOB)] {
        keys.add(name, &key.into(), |identity| identity.tenants(["*"]))
            .unwrap();
    }
    change(&mut limits);
    server(Access::new(keys).allow_anonymous().limits(limits)).tenants(["blue", "red"])
}

#[tokio::test]
async fn s72_open_tasks_of_a_tenant_are_limited_over_all_callers() {
    let server = || tenant_server(|limits| limits.tenant_open_tasks = Some(2));
    everywhere_on(server, async |client: Client| {
        let ann = authenticated(&client, ANN);
        let bob = authenticated(&client, BOB);
        let first = begin(&ann, "hang").await;
        begin(&bob, "ask").await;
        for caller in [&ann, &bob, &client] {
            let refused = caller.send_message(message("hi")).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::RateLimited, "{refused}");
            assert!(refused.retry_after().is_some(), "{refused}");
        }
        if has_tenants(&client) {
            let blue = bob.clone().with_tenant("blue");
            send_text(&blue, "ask").await;
            send_text(&ann.clone().with_tenant("red"), "ask").await;
        }
        cancel(&ann, &first.id).await.unwrap();
        send_text(&client, "hi").await;
    })
    .await;
}

#[tokio::test]
async fn s72_stored_tasks_of_a_tenant_are_limited_and_stay_usable() {
    let server = || tenant_server(|limits| limits.tenant_tasks = Some(2));
    everywhere_on(server, async |client: Client| {
        let ann = authenticated(&client, ANN);
        let bob = authenticated(&client, BOB);
        let ended = send_text(&ann, "hi").await;
        let waiting = send_text(&bob, "ask").await;
        assert_eq!(
            error_kind(client.send_message(message("hi")).await),
            ErrorKind::RateLimited
        );
        // Existing tasks of a full tenant stay usable.
        assert_eq!(get(&ann, &ended).await.status.state, TaskState::Completed);
        assert_eq!(
            send(&bob, message_to(&waiting, "Hamburg"))
                .await
                .status
                .state,
            TaskState::Completed
        );
        if has_tenants(&client) {
            send_text(&ann.clone().with_tenant("blue"), "hi").await;
        }
    })
    .await;
}

/// A revoked key is refused at once.
#[tokio::test]
async fn s41_a_key_is_revoked_while_the_server_runs() {
    let keys = ApiKeys::new();
    let key = keys.issue("ann", |identity| identity);
    let server = Server::new(card(), TextCommandAgent)
        .access(Access::new(keys.clone()))
        .serve_in_process()
        .await
        .unwrap();
    let client = server
        .client(Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_bearer(&key)
        .unwrap();
    send_text(&client, "hi").await;
    keys.replace([]);
    assert_eq!(
        error_kind(client.send_message(message("hi")).await),
        ErrorKind::Unauthenticated
    );
}

/// Cross-site requests of a browser are refused.
#[tokio::test]
async fn s78_cross_site_requests_reach_no_agent() {
    let open = || Server::new(card(), TextCommandAgent);
    everywhere_on(open, async |client: Client| {
        for origin in [
            "https://evil.example",
            "null",
            "http://127.0.0.1.evil.example",
        ] {
            let cross_site = client.clone().with_header("Origin", origin).unwrap();
            assert_eq!(
                error_kind(cross_site.send_message(message("hi")).await),
                ErrorKind::PermissionDenied,
                "{origin}"
            );
            assert_eq!(
                error_kind(find(&cross_site, &"t".into()).await),
                ErrorKind::PermissionDenied,
                "{origin}"
            );
        }
        if can_list(&client).await {
            assert_eq!(
                client
                    .list_tasks(ListTasksRequest::default())
                    .await
                    .unwrap()
                    .total_size,
                0
            );
        }
    })
    .await;
    let running = run(open()).await;
    for form in WIRE_FORMATS {
        let ask = form.ask(
            "SendMessage",
            json!({"message": form.message("hi", json!({}))}),
        );
        let answer = running
            .ask(&ask.with("Origin", "https://evil.example"))
            .await;
        assert_eq!(
            (answer.status, answer.header("access-control-allow-origin")),
            (403, None)
        );
    }
}
