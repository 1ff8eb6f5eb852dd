"""`compact`: landing files of the far table become files of due days, while brokers promote from them."""
