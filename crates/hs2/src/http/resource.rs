//! What a request is for, by its method and path.
//!
//! Clients choose the path of the Thrift service themselves, so every path that names nothing else is that one. A path
//! below `/api/` counts as it is written. Another spelling of one (`//api`, `/x/../api`, `/%61pi`) names nothing: a load
//! balancer with rules about `/api/` may have read it differently.

use http::Method;

use super::probe::Probe;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    Probe(Probe),
    /// What [`HttpApi`](crate::HttpApi) serves.
    Api,
    /// Another spelling of a path below `/api/`.
    Nothing,
    Thrift,
}

impl Resource {
    pub(super) fn new(method: &Method, path: &str) -> Self {
        if let Some(probe) = Probe::new(method, path) {
            return Self::Probe(probe);
        }
        let decoded = percent_decoded(path);
        let mut names: Vec<&[u8]> = Vec::new();
        let mut is_plain = !path.contains("//");
        for segment in decoded.split(|byte| *byte == b'/') {
            match segment {
                b"" => {}
                b"." => is_plain = false,
                b".." => {
                    is_plain = false;
                    names.pop();
                }
                name => names.push(name),
            }
        }
        if path == "/api" || path.starts_with("/api/") {
            return if is_plain { Self::Api } else { Self::Nothing };
        }
        if names.first() == Some(&b"api".as_slice()) { Self::Nothing } else { Self::Thrift }
    }

    /// The methods of a request for it, as `Allow` lists them. Below `/api/` all but CONNECT and TRACE, which have a meaning of
    /// their own in HTTP.
    pub(super) fn methods(self) -> &'static str {
        match self {
            Self::Probe(_) => "GET",
            Self::Api | Self::Nothing => "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
            Self::Thrift => "POST",
        }
    }

    /// Whether a rejection is a [`problem`](crate::http_api::problem), not text.
    pub(super) fn has_problems(self) -> bool {
        matches!(self, Self::Api | Self::Nothing)
    }
}

/// The bytes of a text with its escapes decoded, once.
pub(super) fn percent_decoded(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = match after {
            [high, low, ..] if first == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            decoded.push((high << 4) | low);
            rest = &after[2..];
        } else {
            decoded.push(first);
            rest = after;
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_literal_path_is_below_api() {
        for path in
            ["/api", "/api/", "/api/v1/engines", "/api/v1/engines/a%2fb", "/api/v1/engines/p/e:stop", "/api/%ff"]
        {
            assert_eq!(Resource::new(&Method::GET, path), Resource::Api, "{path}");
        }
        let spellings = [
            "//api",
            "//api/v1",
            "///api",
            "/./api",
            "/../api",
            "/x/../api/v1",
            "/%61pi",
            "/%61%70%69/v1",
            "/%2fapi",
            "/%2e/api",
            "/x/%2e%2e/api",
            "/x/%2E%2e/api",
            "/x%2f..%2fapi",
            "/api%2fv1",
            "/cliservice/../api",
            "/api//v1",
            "/api/./v1",
            "/api/../cliservice",
            "/api/%2e%2e/api/v1",
            "/api/v1/..",
            "/api/v1%2f..%2fv1",
        ];
        for path in spellings {
            assert_eq!(Resource::new(&Method::POST, path), Resource::Nothing, "{path}");
        }
        let others = [
            "/",
            "",
            "*",
            "/cliservice",
            "/cliservice/",
            "//cliservice",
            "/apis",
            "/API",
            "/gateway/api",
            "/api;v=1",
            "/%2561pi",
            "/%6",
            "/%zzapi",
            "/livez",
        ];
        for path in others {
            assert_eq!(Resource::new(&Method::POST, path), Resource::Thrift, "{path}");
        }
    }
}
