//! Threads beside the server's own, where a run of the tests asks for them.

use openftl_server::ServerConfig;

/// How many reactors the servers of this run have; without it, one.
const VARIABLE: &str = "OPENFTL_TEST_REACTORS";

/// The same server, with as many reactors as this run asks for if the test leaves that open. All that moves goes through them.
pub fn with_reactors(config: ServerConfig) -> ServerConfig {
    match std::env::var(VARIABLE) {
        Ok(count) if config.reactors == 1 => {
            ServerConfig { reactors: count.parse().expect(VARIABLE), reactors_above: 0, ..config }
        }
        _ => config,
    }
}
