//! AWS Signature Version 4. Pure: the time is an argument.
//!
//! The algorithm: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>.

use aws_lc_rs::digest;
use aws_lc_rs::hmac;
use std::fmt;
use std::fmt::Write as _;
use std::time::SystemTime;
use time::OffsetDateTime;
use time::macros::format_description;

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The key's public name.
    pub access_key_id: String,
    /// The key. Never logged.
    pub secret_access_key: String,
    /// The token of temporary credentials. Never logged.
    pub session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key_id", &self.access_key_id)
            .finish_non_exhaustive()
    }
}

/// What is signed.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method, in capitals.
    pub method: &'a str,
    /// The path, escaped, beginning with a slash.
    pub path: &'a str,
    /// The query in canonical form: escaped and sorted.
    pub query: &'a str,
    /// Headers in lower case, besides those that signing adds.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body.
    pub body: &'a [u8],
}

/// Where and when the signature holds.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The region, such as `eu-west-1`.
    pub region: &'a str,
    /// The service, such as `ec2`.
    pub service: &'a str,
    /// The time, which must be within minutes of AWS's.
    pub now: SystemTime,
}

/// The headers that a signed request has besides its own: `x-amz-date`, `x-amz-security-token` for temporary credentials,
/// and `authorization`.
pub fn headers(
    request: &Request<'_>,
    scope: &Scope<'_>,
    credentials: &Credentials,
) -> Vec<(&'static str, String)> {
    let stamp = stamp(scope.now);
    let date = stamp.get(..8).unwrap_or_default();
    let mut added = vec![("x-amz-date", stamp.clone())];
    if let Some(token) = &credentials.session_token {
        added.push(("x-amz-security-token", token.clone()));
    }
    let own = request.headers.iter().copied();
    let mut all: Vec<(&str, &str)> = own.chain(added.iter().map(|(n, v)| (*n, &**v))).collect();
    all.sort_unstable();
    let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String = all
        .iter()
        .map(|(name, value)| format!("{name}:{}\n", value.trim()))
        .collect();
    let canonical = format!(
        "{}\n{}\n{}\n{lines}\n{names}\n{}",
        request.method,
        request.path,
        request.query,
        hash(request.body)
    );
    let place = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{stamp}\n{place}\n{}",
        hash(canonical.as_bytes())
    );
    let key = signing_key(&credentials.secret_access_key, date, scope);
    let signature = hex(hmac::sign(&key, to_sign.as_bytes()).as_ref());
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{place}, SignedHeaders={names}, Signature={signature}",
        credentials.access_key_id
    );
    added.push(("authorization", authorization));
    added
}

fn signing_key(secret: &str, date: &str, scope: &Scope<'_>) -> hmac::Key {
    let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
    let parts = [date, scope.region, scope.service, "aws4_request"];
    parts.into_iter().fold(first, |key, part| {
        hmac::Key::new(
            hmac::HMAC_SHA256,
            hmac::sign(&key, part.as_bytes()).as_ref(),
        )
    })
}

fn stamp(now: SystemTime) -> String {
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    // Only a year beyond 9999 cannot be written.
    OffsetDateTime::from(now).format(format).unwrap_or_default()
}

fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}"); // A String takes everything.
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn signed(request: &Request<'_>, service: &str, token: Option<&str>) -> String {
        let credentials = Credentials {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: token.map(ToOwned::to_owned),
        };
        let scope = Scope {
            region: "us-east-1",
            service,
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160),
        };
        let headers = headers(request, &scope, &credentials);
        assert_eq!(headers[0], ("x-amz-date", "20150830T123600Z".to_owned()));
        headers.last().unwrap().1.clone()
    }

    /// The worked example of AWS's documentation and two requests of its published test suite.
    #[test]
    fn published_signatures() {
        let list_users = Request {
            method: "GET",
            path: "/",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &[
                (
                    "content-type",
                    "application/x-www-form-urlencoded; charset=utf-8",
                ),
                ("host", "iam.amazonaws.com"),
            ],
            body: b"",
        };
        assert_eq!(
            signed(&list_users, "iam", None),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
        let form = Request {
            method: "POST",
            query: "",
            headers: &[
                ("content-type", "application/x-www-form-urlencoded"),
                ("host", "example.amazonaws.com"),
            ],
            body: b"Param1=value1",
            ..list_users
        };
        let signature =
            "Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a";
        assert!(signed(&form, "service", None).ends_with(signature));
        let plain = Request {
            method: "GET",
            query: "",
            headers: &[("host", "example.amazonaws.com")],
            ..list_users
        };
        let signature =
            "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        assert!(signed(&plain, "service", None).ends_with(signature));
    }

    #[test]
    fn a_session_token_is_signed_too() {
        let request = Request {
            method: "POST",
            path: "/",
            query: "",
            headers: &[("host", "example.amazonaws.com")],
            body: b"",
        };
        let text = signed(&request, "ec2", Some("token"));
        assert!(
            text.contains("SignedHeaders=host;x-amz-date;x-amz-security-token,"),
            "{text}"
        );
    }
}
