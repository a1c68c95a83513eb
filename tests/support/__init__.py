"""What several tests share: servers on loopback, players that know the tasks, hostile programs and specs, a fuzzer."""
