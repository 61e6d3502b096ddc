//! Checks that this server runs, against real listeners, and what survives a restart.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // Test code: a failed step should stop the test.

use crate::support::agent::AgentServer;
use crossway::local::checks::{HttpProbe, Probe, Report, Runner};
use crossway::model::CheckStatus;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const SECOND: Duration = Duration::from_secs(1);

/// Answers every connection with `answer` and hands out what was asked.
async fn http(answer: &'static str) -> (String, tokio::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, questions) = tokio::sync::mpsc::channel(8);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = vec![0; 4096];
            let mut question = String::new();
            while !question.contains("\r\n\r\n") {
                let n = stream.read(&mut buffer).await.unwrap_or(0);
                if n == 0 {
                    break;
                }
                question.push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = asked.try_send(question);
        }
    });
    (format!("http://{address}/health"), questions)
}

fn get(url: &str) -> HttpProbe {
    HttpProbe {
        url: url.to_owned(),
        method: "GET".to_owned(),
        header: Vec::new(),
        body: String::new(),
        tls_skip_verify: false,
        output_max: 4096,
    }
}

async fn run(probe: HttpProbe) -> Report {
    let runner = Runner::new(1);
    runner.run(&Probe::Http(Box::new(probe)), 5 * SECOND).await
}

#[tokio::test]
async fn an_http_answer_decides_by_its_status() {
    use CheckStatus::{Critical, Passing, Warning};
    for (answer, status, words) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine",
            Passing,
            "200 OK Output: fine",
        ),
        (
            "HTTP/1.1 204 No Content\r\n\r\n",
            Passing,
            "204 No Content Output: ",
        ),
        (
            "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n",
            Warning,
            "429 Too Many Requests Output: ",
        ),
        (
            "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 3\r\n\r\nbad",
            Critical,
            "500 Internal Server Error Output: bad",
        ),
    ] {
        let (url, _questions) = http(answer).await;
        let report = run(get(&url)).await;
        assert_eq!(report.status, status, "{answer}");
        assert_eq!(report.output, format!("HTTP GET {url}: {words}"));
    }
}

#[tokio::test]
async fn method_header_and_body_are_sent_and_the_end_of_a_long_answer_is_kept() {
    let (url, mut questions) =
        http("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789").await;
    let probe = HttpProbe {
        method: "PUT".into(),
        header: vec![("X-Own".into(), "a".into()), ("x-own".into(), "b".into())],
        body: "hello".into(),
        output_max: 4,
        ..get(&url)
    };
    let report = run(probe).await;
    assert!(report.output.ends_with("Output: 6789"), "{}", report.output);
    let question = questions.recv().await.unwrap().to_lowercase();
    for part in [
        "put /health",
        "x-own: a",
        "x-own: b",
        "user-agent: consul health check",
    ] {
        assert!(question.contains(part), "{part}: {question}");
    }
}

#[tokio::test]
async fn silence_refusal_and_nonsense_are_critical_with_a_reason() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let runner = Runner::new(1);
    let url = format!("http://{address}/");
    let probe = Probe::Http(Box::new(get(&url)));
    let report = runner.run(&probe, Duration::from_millis(50)).await;
    assert_eq!(report.output, format!("Get {url:?}: no answer within 50ms"));
    drop(silent);
    let closed = run(get(&url)).await.output;
    let refused = format!("dial tcp {address}: connect: connection refused");
    assert_eq!(closed, format!("Get {url:?}: {refused}"));
    let tcp = |target: &str| Probe::Tcp(target.to_owned());
    for (target, output) in [
        (address.to_string(), refused),
        (
            "127.0.0.1".to_owned(),
            "dial tcp: address 127.0.0.1: missing port in address".to_owned(),
        ),
    ] {
        let report = runner.run(&tcp(&target), SECOND).await;
        assert_eq!(
            (report.status, report.output),
            (CheckStatus::Critical, output)
        );
    }
    assert_eq!(run(get("::bad")).await.status, CheckStatus::Critical);
    assert_eq!(run(get("ftp://x/")).await.status, CheckStatus::Critical);
}

#[tokio::test]
async fn a_tcp_check_follows_its_listener_and_its_service_goes_in_the_end() {
    let server = AgentServer::start("n1", None).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = json!({"Name": "web", "Check": {
        "CheckID": "c", "TCP": address.to_string(), "Interval": "20ms",
        "FailuresBeforeCritical": 3, "DeregisterCriticalServiceAfter": "300ms",
    }});
    server.put("/v1/agent/service/register", &service).await;
    let is = |status| {
        move |state: &crossway::store::State| {
            state
                .check("n1", "c")
                .is_some_and(|check| check.status == status)
        }
    };
    server.until("passing", is(CheckStatus::Passing)).await;
    drop(listener);
    server.until("critical", is(CheckStatus::Critical)).await;
    let back = TcpListener::bind(address).await.unwrap();
    server
        .until("passing again", is(CheckStatus::Passing))
        .await;
    drop(back);
    server
        .until("gone", |state| state.service("n1", "web").is_none())
        .await;
    let services = server.get("/v1/agent/services").await;
    assert_eq!(services.text().trim(), "{}");
}

#[tokio::test]
async fn what_was_registered_is_there_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let server = AgentServer::start("n1", Some(dir.path())).await;
    let web = json!({"Name": "web", "Port": 80, "Check": {"CheckID": "c", "TTL": "1h"}});
    server.put("/v1/agent/service/register", &web).await;
    let gone = json!({"Name": "gone"});
    server.put("/v1/agent/service/register", &gone).await;
    server
        .put("/v1/agent/service/deregister/gone", &json!(null))
        .await;
    let alone = json!({"Name": "alone", "TTL": "1h", "Notes": "by itself"});
    server.put("/v1/agent/check/register", &alone).await;
    let before = (
        server.get("/v1/agent/services").await.json(),
        server.get("/v1/agent/checks").await.json(),
    );
    server.kill().await;

    let damaged = dir.path().join("services").join("damaged");
    std::fs::write(&damaged, "{").unwrap();
    let again = AgentServer::start("n1", Some(dir.path())).await;
    assert_eq!(again.problems.len(), 1);
    assert!(again.problems[0].contains(damaged.to_str().unwrap()));
    let after = (
        again.get("/v1/agent/services").await.json(),
        again.get("/v1/agent/checks").await.json(),
    );
    assert_eq!(before, after);
    again
        .until("synced", |state| {
            state.service("n1", "web").is_some() && state.check("n1", "alone").is_some()
        })
        .await;
}

#[tokio::test]
async fn a_report_reaches_the_catalog() {
    let server = AgentServer::start("n1", None).await;
    let check = json!({"Name": "c", "TTL": "1h"});
    server.put("/v1/agent/check/register", &check).await;
    for (path, body, status, output) in [
        ("pass/c?note=hello", json!(null), "passing", "hello"),
        ("warn/c", json!(null), "warning", ""),
        ("fail/c?note=a%20b", json!(null), "critical", "a b"),
        (
            "update/c",
            json!({"status": "passing", "Output": "o"}),
            "passing",
            "o",
        ),
    ] {
        server.put(&format!("/v1/agent/check/{path}"), &body).await;
        server
            .until(path, |state| {
                let check = state.check("n1", "c");
                check.is_some_and(|c| c.status.as_str() == status && c.output == output)
            })
            .await;
    }
    server
        .put("/v1/agent/check/deregister/c", &json!(null))
        .await;
    server
        .until("gone", |state| state.check("n1", "c").is_none())
        .await;
}
