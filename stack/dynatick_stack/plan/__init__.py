"""What a load takes: parameters, quotas, time and price. Arithmetic, over figures that say where they come from."""
