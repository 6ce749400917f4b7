"""What makes Ray wait for the processes that it starts, on a machine that does other work, too."""

PATIENT = {
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_gcs_rpc_server_connect_timeout_s": "120",
    "RAY_gcs_server_request_timeout_seconds": "120",
    "RAY_health_check_initial_delay_ms": "60000",
    "RAY_health_check_timeout_ms": "120000",
    # No worker before one is asked for: eight at once take a small machine's first minute.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_AUTH_MODE": "disabled",
}
